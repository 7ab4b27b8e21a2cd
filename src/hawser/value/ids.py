"""Job ids: UUIDv7, made by the client, so that a repeated insert is recognised and does nothing."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final

_SHAPE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_DRAWN: Final = 64
"""Random numbers that are drawn at once: a system call for each id would be a fifth of its cost."""


class _Sequence:
    """Ids of one process in strictly rising order, also within one millisecond and over a clock step back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._drawn: Iterator[int] = iter(())

    def next(self) -> tuple[int, int]:
        """60 bits of time: 48 of milliseconds and 12 of a fraction, always above the last; and 64 random bits."""
        stamp = (time.time_ns() << 12) // 1_000_000
        with self._lock:
            self._last = stamp = max(stamp, self._last + 1)
            for drawn in self._drawn:
                return stamp, drawn
            self._drawn = iter(_NUMBERS.unpack(os.urandom(_NUMBERS.size)))
            return stamp, next(self._drawn)

    def forked(self) -> None:
        """In a child: a thread of the parent may have held the lock, and the numbers that were drawn are the parent's."""
        self._lock = threading.Lock()
        self._drawn = iter(())


_NUMBERS: Final = Struct(f"{_DRAWN}Q")
_sequence = _Sequence()
os.register_at_fork(after_in_child=_sequence.forked)


def new_id() -> str:
    """A new UUIDv7 as text. Sorts by creation within a process; 62 bits are random, so processes need not agree."""
    stamp, drawn = _sequence.next()
    time_high, time_low, fraction = stamp >> 28, stamp >> 12 & 0xFFFF, stamp & 0xFFF
    return f"{time_high:08x}-{time_low:04x}-7{fraction:03x}-{drawn >> 48 & 0x3FFF | 0x8000:04x}-{drawn & 0xFFFFFFFFFFFF:012x}"


def derived_id(id: str, *names: str) -> str:
    """An id that follows from another and some names: always the same, of the same time, and no other job's."""
    digest = hashlib.sha256("\0".join((id, *names)).encode()).digest()
    fraction = int.from_bytes(digest[:2], "big") & 0xFFF
    tail = (int.from_bytes(digest[2:10], "big") & 0x3FFFFFFFFFFFFFFF) | 0x8000000000000000
    text = f"{id.replace('-', '')[:12]}7{fraction:03x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Whether the text has the shape of an id of ours."""
    return _SHAPE.fullmatch(text) is not None


def made_at(id: str) -> datetime:
    """When an id was made, by the clock of its maker."""
    return _EPOCH + timedelta(milliseconds=int(id.replace("-", "")[:12], 16))
