"""Checkpoints that survive the scheduler: written while the training goes on, whole or not at all, loaded on any number of ranks.

    from eirene_train.checkpoint import Checkpointer, PerRank, RandomState, Training

On top of torch's distributed checkpointing, over any of its backends or none; see `Checkpointer`. Needs torch.
"""

from __future__ import annotations

from ._checkpointer import Checkpointer, Saved, load_latest
from ._state import PerRank, RandomState, Training
from .errors import CheckpointError

__all__ = ["CheckpointError", "Checkpointer", "PerRank", "RandomState", "Saved", "Training", "load_latest"]
