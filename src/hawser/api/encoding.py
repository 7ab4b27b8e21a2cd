"""Answers made smaller for the wire, where the caller can read that and there is something to gain."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

FROM: Final = 1_400
"""Bytes from which an answer is compressed: a smaller one is one packet anyway, and the answers of the hot path are smaller."""

_ASIDE: Final = 64 * 1024
"""Bytes from which that is done in a thread: level 1 takes about 10 µs a kilobyte, in which no other request would be served."""

_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS


def takes_gzip(accepted: bytes) -> bool:
    """Whether the header `Accept-Encoding` lets us answer in gzip."""
    weights = {}
    for part in accepted.lower().split(b","):
        name, _, weight = part.partition(b";")
        weights[name.strip()] = weight.strip().removeprefix(b"q=")
    weight = weights.get(b"gzip", weights.get(b"*", b"0"))
    return weight.strip(b"0.") != b"" or weight == b""


async def squeezed(body: bytes) -> bytes:
    """The body in gzip."""
    if len(body) < _ASIDE:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    squeezer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return squeezer.compress(body) + squeezer.flush()
