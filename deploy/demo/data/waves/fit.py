"""Finds the wave in the noise of the data set it lies in: `python3 /data/waves/fit.py`."""

from pathlib import Path

import numpy

seconds, volts = numpy.loadtxt(Path(__file__).with_name("waves.csv"), delimiter=",", skiprows=1, unpack=True)
strength = numpy.abs(numpy.fft.rfft(volts - volts.mean()))
hertz = numpy.fft.rfftfreq(len(seconds), seconds[1] - seconds[0])[strength.argmax()]
print(f"{len(seconds)} samples; the strongest wave has {hertz:.2f} Hz")
