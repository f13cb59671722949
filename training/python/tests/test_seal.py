"""What the package sends between ranks itself: nobody else reads or changes it, and it goes by the interfaces that are meant."""

from __future__ import annotations

import os
import socket

import pytest

from eirene_train import InvalidArgument, _native, _wire


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


def test_a_forked_child_neither_seals_nor_opens() -> None:
    near, far = ends()
    sealed = near.seal(b"one")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: near.seal(b"two"), lambda: far.open(sealed)):
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert far.open(sealed) == b"one"


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


def test_interfaces_are_chosen_by_name_or_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(listed: str) -> list[str]:
        monkeypatch.setenv("EIRENE_TRAIN_INTERFACE", listed)
        return _native.addresses()

    assert "127.0.0.1" in chosen("lo") and chosen("127.0.0.1") == ["127.0.0.1"]
    assert chosen(" 127.0.0.1 , lo,")[:2] == ["127.0.0.1"] * 2
    everywhere = chosen("")
    assert everywhere and not any(address.startswith(("169.254.", "fe80:")) for address in everywhere)
    # The loopback leads nowhere, unless nothing else does.
    assert "127.0.0.1" not in everywhere or set(everywhere) <= set(chosen("lo"))
    for address in everywhere:
        assert set(chosen(address)) == {address}
    for wrong in ("nosuch0", "lo,nosuch0", "192.0.2.250"):
        with pytest.raises(InvalidArgument, match=f"`{wrong.rpartition(',')[2]}`.* lo"):
            chosen(wrong)
