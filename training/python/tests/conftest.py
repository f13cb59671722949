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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With EIRENE_TEST_SHARD=k/n, the k-th of every n tests (`tests/run`)."""
    shard = os.environ.get("EIRENE_TEST_SHARD")
    if shard:
        which, many = map(int, shard.split("/"))
        config.hook.pytest_deselected(items=[item for index, item in enumerate(items) if index % many != which - 1])
        items[:] = items[which - 1 :: many]


@pytest.fixture
def traces() -> Iterator[launchers.Traces]:
    """What ranks of a test may leave behind: a private place for it, looked at and cleared away afterwards."""
    traces = launchers.Traces()
    yield traces
    traces.clear()
