"""How a log is written: frames with a number and a checksum, one for each sync of the disk."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hawser.errors import StoreUnavailable

_logger = logging.getLogger("hawser.store")

MAGIC: Final = b"\x89HWJ"
"""Begins every frame, so that a frame behind a damaged one can be found."""

_FRAME_HEAD: Final = struct.Struct("<4sIQI")
"""Magic, checksum of what follows, number of the frame, length of its body."""

_CHECKED_FROM: Final = 8
"""The checksum is of everything behind it."""


class Frame(NamedTuple):
    """What one sync brought to the disk."""

    number: int
    body: bytes
    end: int
    """The offset behind it."""


def framed(number: int, body: bytes) -> bytes:
    head = _FRAME_HEAD.pack(MAGIC, 0, number, len(body))
    checksum = zlib.crc32(body, zlib.crc32(head[_CHECKED_FROM:]))
    return b"".join((MAGIC, checksum.to_bytes(4, "little"), head[_CHECKED_FROM:], body))


def frames(path: Path, first: int, *, last_log: bool) -> Iterator[Frame]:
    """The frames of a log, which begin with the number `first`.

    A frame is written only after the one before it was synced. So a damaged frame with a later one behind it was damaged on the
    disk, and is refused. A damaged frame at the end of the last log, before nothing but zeros, is a write that a crash cut off:
    no call in it was answered, and it is left out.
    """
    data = path.read_bytes()
    offset, number = 0, first
    while offset < len(data):
        frame = _frame_at(data, offset)
        if frame is None or frame.number != number:
            _check_tail(path, data, offset, number, last_log=last_log)
            return
        yield frame
        offset, number = frame.end, number + 1


def _frame_at(data: bytes, offset: int) -> Frame | None:
    """The frame that begins there, if it is whole."""
    if offset + _FRAME_HEAD.size > len(data):
        return None
    magic, checksum, number, length = _FRAME_HEAD.unpack_from(data, offset)
    end = offset + _FRAME_HEAD.size + length
    if magic != MAGIC or end > len(data) or zlib.crc32(data[offset + _CHECKED_FROM : end]) != checksum:
        return None
    return Frame(number, data[offset + _FRAME_HEAD.size : end], end)


def _check_tail(path: Path, data: bytes, offset: int, number: int, *, last_log: bool) -> None:
    """Raise unless the damage is a write that was cut off. Zeros are none: they stand ahead of what is written."""
    if last_log and not data[offset:].strip(b"\0"):
        return
    at = data.find(MAGIC, offset + 1)
    later = False
    while at >= 0 and not later:
        frame = _frame_at(data, at)
        later = frame is not None and frame.number > number
        at = data.find(MAGIC, at + 1)
    if later or not last_log:
        raise StoreUnavailable(
            f"the journal {str(path)!r} is damaged at byte {offset}, and calls that were answered stand behind it; nothing was "
            "changed: restore the folder from a copy"
        )
    _logger.warning("journal %s: the last %d bytes were cut off by a crash and are left out", path, len(data) - offset)
