"""Makes the helpers in this folder importable for the tests, as they are for the ranks; nothing is measured unless a test asks for it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import launchers  # noqa: E402 - from this folder

os.environ["EIRENE_TRAIN_TUNING"] = "off"
# A shell's background job ignores Ctrl-C, and hands that on to every program it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def traces() -> Iterator[launchers.Traces]:
    """What ranks of a test may leave behind: a private place for it, looked at and cleared away afterwards."""
    traces = launchers.Traces()
    yield traces
    traces.clear()
