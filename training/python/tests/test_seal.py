"""What the package sends between ranks itself: nobody else reads or changes it."""

from __future__ import annotations

import socket

import pytest

from eirene_train import _native, _wire


def ends() -> tuple[_native.Seal, _native.Seal]:
    one, other = b"1" * 32, b"2" * 32
    return _native.Seal(one, other), _native.Seal(other, one)


def test_frames_come_in_order_both_ways() -> None:
    near, far = ends()
    for frame in (b"", b"a", b"gradient" * 10_000):
        sealed = near.seal(frame)
        assert len(sealed) == len(frame) + 16 and (len(frame) < 8 or frame[:8] not in sealed)
        assert far.open(sealed) == frame
        assert near.open(far.seal(frame)) == frame


@pytest.mark.parametrize("at", [0, 2, 3, 10, 18])
def test_a_changed_byte_is_refused_and_what_follows_too(at: int) -> None:
    near, far = ends()
    sealed = bytearray(near.seal(b"one"))
    sealed[at] ^= 1
    with pytest.raises(ConnectionError, match="not what the other side sent"):
        far.open(bytes(sealed))
    with pytest.raises(ConnectionError):
        far.open(near.seal(b"two"))


def test_a_doubled_missing_or_cut_frame_is_refused() -> None:
    for wrong in (lambda one, two: [one, one], lambda one, two: [two], lambda one, two: [one[:-1]], lambda one, two: [b""]):
        near, far = ends()
        *right, last = wrong(near.seal(b"one"), near.seal(b"two"))
        for sealed in right:
            far.open(sealed)
        with pytest.raises(ConnectionError):
            far.open(last)


def test_keys_are_of_one_length_and_two() -> None:
    for ours, theirs in ((b"1" * 32, b"1" * 32), (b"1" * 31, b"2" * 32), (b"1" * 32, b"")):
        with pytest.raises(ValueError, match="a key is 32 bytes"):
            _native.Seal(ours, theirs)


def test_the_store_shows_nothing_on_its_connection() -> None:
    near, far = socket.socketpair()
    secret, nonces = b"s" * 32, b"n" * 64
    with near, far:
        _wire.Frames(near, secret, b"client", b"server", nonces).send(b"the value of a key")
        wire = far.recv(1000)
        assert len(wire) == 4 + 16 + 18 + 16 and b"value" not in wire and wire[:4] != (18).to_bytes(4, "little")
        near.sendall(wire)
        assert _wire.Frames(far, secret, b"server", b"client", nonces).receive() == b"the value of a key"
        near.sendall(wire)
        with pytest.raises(ConnectionError):
            _wire.Frames(far, secret, b"server", b"client", nonces + b"other").receive()
