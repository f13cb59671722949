"""Makes the helpers in this folder importable for the tests, as they are for the ranks; nothing is measured unless a test asks for it."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["EIRENE_TRAIN_TUNING"] = "off"
# A shell's background job ignores Ctrl-C, and hands that on to every program it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
