"""What a checkpoint is of: things with a state, plain values and values of each rank, and how they become names with tensors or values.

A dictionary or list that holds tensors somewhere is taken apart, and its parts are named by their path, as torch names them
(``model.layers.0.weight``). What holds none is one value, written by torch.save: so keys that are not strings stay what they are.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict as torch_state
from torch.distributed.checkpoint.stateful import Stateful

from ..errors import InvalidArgument

__all__ = ["PerRank", "RandomState", "Training", "Tree"]


class Training:
    """A model and its optimizers, in a form that does not depend on how many ranks share them, nor how.

    Parameters are named as in the plain model, whatever wraps it: what was saved under DistributedDataParallel can be loaded under FSDP2, tensor
    parallel, or in a single process. An optimizer that has not made a step yet gets its state here, so that there is something to load into.

    Args:
        model: the model, wrapped as it is trained.
        optimizers: those that train it.

    Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html, `get_state_dict` and `set_state_dict`.
    """

    def __init__(self, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        if not optimizers:
            raise InvalidArgument("Training needs the optimizers too; a model alone can be given to `save` as it is")
        self.model = model
        self.optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        """Both, under ``model`` and ``optimizer``."""
        model, optimizer = torch_state.get_state_dict(self.model, self.optimizers)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts both back."""
        model, optimizer = state_dict["model"], state_dict["optimizer"]
        torch_state.set_state_dict(self.model, self.optimizers, model_state_dict=model, optim_state_dict=optimizer)


class _Model:
    """A model alone, named in the same way."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return dict(torch_state.get_model_state_dict(self._model))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch_state.set_model_state_dict(self._model, state_dict)


class PerRank:
    """Something that each rank has of its own: random numbers, a place in its share of the data.

    It is loaded where the number of ranks is the one it was saved by; elsewhere there is no telling what belongs to whom, and it stays as it is.

    Args:
        value: a thing with a state, or a plain value; a plain one is replaced when it is loaded.

    Attributes:
        value: the same.
        restored: whether `load_latest` has loaded it; none: nothing was loaded yet.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.restored: bool | None = None


class RandomState:
    """The random numbers of this process: torch's, those of its GPUs where CUDA is in use, Python's and numpy's where it is in use.

    Ranks mostly have different ones: ``PerRank(RandomState())``.
    """

    def state_dict(self) -> dict[str, Any]:
        """Where each of them is."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        numpy = sys.modules.get("numpy")
        # In one piece, however much of it there is: numpy may be in use at one end alone.
        return {"all": (torch.get_rng_state(), cuda, random.getstate(), None if numpy is None else numpy.random.get_state())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts them back there."""
        own, cuda, python, of_numpy = state_dict["all"]
        torch.set_rng_state(own)
        if cuda and torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(cuda)
        random.setstate(python)
        numpy = sys.modules.get("numpy")
        if of_numpy is not None and numpy is not None:
            numpy.random.set_state(of_numpy)


class Tree:
    """A state, taken apart.

    Args:
        state: by name: things with a state, values, dictionaries and lists of them, `PerRank`s.
        rank: this rank, of those that make the checkpoint.
        size: how many those are.
        saved_by: to be loaded: how many wrote the checkpoint; none: it is to be saved.

    Attributes:
        leaves: tensors and values by their names; what is loaded is put here.

    Raises:
        InvalidArgument: a state that would not be the same when loaded.
    """

    def __init__(self, state: MutableMapping[str, Any], rank: int, size: int, saved_by: int | None = None) -> None:
        self._state = state
        self._parts: dict[str, Any] = {}
        self._owners: dict[str, Any] = {}
        self._places: dict[str, tuple[Any, Any]] = {}
        self._left_alone: list[PerRank] = []
        self.leaves: dict[str, Any] = {}
        for key, value in state.items():
            name = key
            if isinstance(value, PerRank):
                if saved_by not in (None, size):
                    self._left_alone.append(value)
                    continue
                name, value = f"{key}.rank-{rank}-of-{size}", value.value
            owner = self._owners[key] = _owner(key, value)
            self._parts[key] = value if owner is None else owner.state_dict()
            self._take_apart(self._parts, key, name)

    def _take_apart(self, container: Any, key: Any, name: str) -> None:
        value = container[key]
        if not isinstance(value, torch.Tensor) and _has_tensors(value):
            keys: Iterable[Any] = list(value) if isinstance(value, Mapping) else range(len(value))
            for inner in keys:
                self._take_apart(value, inner, f"{name}.{inner}")
            return
        if name in self.leaves:
            raise InvalidArgument(f"two things in the state are named `{name}`; rename one of them")
        self.leaves[name] = value
        self._places[name] = container, key

    def put_back(self) -> None:
        """Gives what was loaded to whom it belongs to: by `load_state_dict`, or into the state itself."""
        for name, (container, key) in self._places.items():
            container[key] = self.leaves[name]
        for key, owner in self._owners.items():
            value = self._state[key]
            if owner is not None:
                owner.load_state_dict(self._parts[key])
            elif isinstance(value, PerRank):
                value.value = self._parts[key]
            else:
                self._state[key] = self._parts[key]
            if isinstance(value, PerRank):
                value.restored = True
        for value in self._left_alone:
            value.restored = False


def _owner(key: str, value: Any) -> Stateful | None:
    """Who gives and takes the state of a value; none: the value is its own."""
    if isinstance(value, torch.optim.Optimizer):
        raise InvalidArgument(
            f"`{key}` is an optimizer: its state has no names, and a new one has nothing to load into; give it together with its model, as "
            "`eirene_train.checkpoint.Training(model, optimizer)`"
        )
    if isinstance(value, torch.nn.Module):
        return _Model(value)
    return value if isinstance(value, Stateful) else None


def _has_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a dictionary or list of which a part is one. Tuples are whole: nothing can be put into them."""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, MutableMapping):
        return any(_has_tensors(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_tensors(inner) for inner in value)
