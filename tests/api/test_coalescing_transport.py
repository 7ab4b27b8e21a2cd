"""Writes that belong together go together, and none is held for long."""

from __future__ import annotations

import asyncio

from hawser.api.coalescing_transport import Joined


class Wire:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.sent


async def test_head_and_body_are_one_write():
    joined = Joined(wire := Wire(), asyncio.get_running_loop())  # type: ignore[arg-type]  # what is needed of a transport
    joined.write(b"head")
    joined.write(b"body")
    assert wire.sent == [b"headbody"]
    await asyncio.sleep(0)
    joined.write(b"head")
    joined.write(b"")
    assert wire.sent[1:] == [b"head"], "an answer without a body"
    await asyncio.sleep(0)
    assert wire.sent == [b"headbody", b"head"]


async def test_what_is_alone_goes_with_the_next_turn_of_the_loop():
    joined = Joined(wire := Wire(), asyncio.get_running_loop())  # type: ignore[arg-type]
    joined.write(b"one")
    await asyncio.sleep(0)
    joined.write(b"two")
    await asyncio.sleep(0)
    assert wire.sent == [b"one", b"two"]


async def test_nothing_is_lost_at_the_end():
    joined = Joined(wire := Wire(), asyncio.get_running_loop())  # type: ignore[arg-type]
    joined.write(b"last")
    joined.close()
    await asyncio.sleep(0)
    assert wire.sent == [b"last", b"closed"]
    assert joined.is_closing()
