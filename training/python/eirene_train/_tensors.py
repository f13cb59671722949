"""Tensors as the runtime sees them: addresses, numbers of elements, and numbers for their types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import _native
from .errors import InvalidArgument

__all__ = ["BYTE", "DTYPES", "blocks", "check", "check_written", "contiguous", "copies", "flat", "moved", "multiplied", "one", "plain", "real", "room", "same", "write"]

_NAMES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
# torch has the wider unsigned ones from 2.3 on, and `comm_hook` works with older ones.
DTYPES: dict[torch.dtype, int] = {getattr(torch, name): _native.dtype(name) for name in _NAMES if hasattr(torch, name)}
BYTE = _native.dtype("uint8")


def plain(tensor: torch.Tensor) -> bool:
    """Whether its memory is its content: in order, and neither negated nor conjugated by a mark that torch keeps beside it."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it is plain, else a copy that is."""
    return tensor if plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def room(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it is plain, else a plain one like it, its content undefined, to be copied back from."""
    return tensor if plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def copies(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None] | None:
    """What writes into the first of each pair what the second has; none where there are no pairs.

    Raises:
        InvalidArgument: one of the first cannot be written.
    """
    if not pairs:
        return None
    check_written(*[target for target, _ in pairs])

    def copy() -> None:
        for target, source in pairs:
            write(target, source)

    return copy


def check_written(*tensors: torch.Tensor) -> None:
    """Refuses tensors that results cannot be written into, before anything is sent."""
    for tensor in tensors:
        if torch._debug_has_internal_overlap(tensor) == 1:
            raise InvalidArgument(
                f"a result cannot be written into a tensor of shape {list(tensor.shape)} some of whose elements are the same memory, as after "
                "`expand`; give a `clone()` of it"
            )


def write(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies as the runtime writes into memory: whatever autograd would say, and in whatever thread."""
    # In this order: to leave inference mode is to have gradients again.
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.copy_(source)


def moved(tensor: torch.Tensor) -> tuple[int, int]:
    """The type to move a tensor's elements as, and how many of that make one of them."""
    code = DTYPES.get(tensor.dtype)
    return (code, 1) if code is not None else (BYTE, tensor.element_size())


def flat(tensors: Sequence[torch.Tensor], factor: int) -> list[int]:
    parts: list[int] = []
    for tensor in tensors:
        parts.append(tensor.data_ptr())
        parts.append(tensor.numel() * factor)
    return parts


def blocks(tensor: torch.Tensor, counts: Sequence[int], factor: int) -> list[int]:
    """The parts of a contiguous tensor that follow each other, by their numbers of elements."""
    address, size = tensor.data_ptr(), tensor.element_size()
    parts: list[int] = []
    for count in counts:
        parts.append(address)
        parts.append(count * factor)
        address += count * size
    return parts


def check(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise InvalidArgument(
                f"`eirene` moves dense tensors, and this one of shape {list(tensor.shape)} has the layout `{tensor.layout}`; make a dense one of it "
                "first, with `to_dense()` for example"
            )
        if tensor.is_meta:
            raise InvalidArgument(f"`eirene` moves what is in memory, and this tensor of shape {list(tensor.shape)} is on `meta`, which has none")
        if not tensor.is_cpu:
            raise InvalidArgument(
                f"`eirene` moves dense tensors in the CPU's memory, and this one of shape {list(tensor.shape)} is on `{tensor.device}`; for tensors on a "
                f"GPU beside it: init_process_group('cpu:eirene,cuda:nccl')"
            )


def same(name: str, first: torch.Tensor, *others: torch.Tensor) -> None:
    for other in others:
        if other.dtype != first.dtype:
            raise InvalidArgument(f"{name}: tensors of one type are needed, and these are `{first.dtype}` and `{other.dtype}`")


def multiplied(tensor: torch.Tensor, factor: float | torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor of the same type and shape, new or `into`; the factor is a number, or a tensor of one.

    Raises:
        InvalidArgument: the factor is something else.
    """
    if isinstance(factor, torch.Tensor):
        if factor.numel() != 1 or not factor.is_cpu:
            raise InvalidArgument(f"a factor is a number, or one in the CPU's memory, and this is a tensor of shape {tuple(factor.shape)} on {factor.device}")
        factor = factor.reshape(())
    product = torch.empty_like(tensor) if into is None else into
    return torch.mul(tensor, factor, out=product)


def one(name: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise InvalidArgument(f"{name}: one tensor for each rank is needed, and these are {len(tensors)}")
    return tensors[0]


def real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
