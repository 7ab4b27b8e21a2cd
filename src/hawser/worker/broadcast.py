"""What a supervisor tells all of its processes: the tasks that have crashed one, and are to be run apart for a while; and that it
is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

BROADCAST_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 24
_VERSION, _LENGTH, _CLOSED = range(3)


class Broadcast:
    """A list of names in shared memory, with a version that is written last. A reader that meets a change reads again later."""

    def __init__(self, buffer: Any) -> None:
        self._bytes = memoryview(buffer).cast("B")[:BROADCAST_BYTES]
        self._words = self._bytes[:_HEAD_BYTES].cast("Q")
        self._seen = 0

    def write(self, names: Iterable[str]) -> None:
        body = msgspec.json.encode(sorted(names))
        if len(body) <= BROADCAST_BYTES - _HEAD_BYTES:
            self._words[_LENGTH] = len(body)
            self._bytes[_HEAD_BYTES : _HEAD_BYTES + len(body)] = body
            self._words[_VERSION] += 1

    def close(self) -> None:
        """All processes are about to end. Each knows it before the first of them hands a job back, and none begins that job."""
        self._words[_CLOSED] = 1

    @property
    def closed(self) -> bool:
        return self._words[_CLOSED] != 0

    def news(self) -> frozenset[str] | None:
        """The names, when they changed since the last look."""
        version = self._words[_VERSION]
        if version == self._seen:
            return None
        try:
            names = msgspec.json.decode(bytes(self._bytes[_HEAD_BYTES : _HEAD_BYTES + self._words[_LENGTH]]), type=frozenset[str])
        except msgspec.DecodeError:
            return None
        if self._words[_VERSION] != version:
            return None
        self._seen = version
        return names
