"""The rule by which stores keep output, and a chunk as they read it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hawser.clock import at
from hawser.store import MAX_CHUNKS, MAX_OUTPUT, Chunk, NewOutput, OutputKept


class LastChunk(NamedTuple):
    """The last chunk of a job's output, which tells how much there is."""

    number: int = 0
    total: int = 0
    """Bytes of this chunk and of all before it."""
    lease: int = 0
    place: int = 0
    """Its place in the output of its run, from 1."""


class KeptChunk(NamedTuple):
    """A chunk that is to be kept."""

    last: LastChunk
    body: bytes


def appended(last: LastChunk, output: NewOutput) -> Iterator[KeptChunk]:
    """What is to be kept of an output behind the last chunk of its job. A gap means that a chunk before it was left out."""
    place = last.place if last.lease == output.lease else 0
    if output.first > place:
        return
    for body in output.chunks[place - output.first :]:
        number, total, place = last.number + 1, last.total + len(body), place + 1
        if number > MAX_CHUNKS or total > MAX_OUTPUT:
            return
        last = LastChunk(number, total, output.lease, place)
        yield KeptChunk(last, body)


def kept_of(last: LastChunk, lease: int) -> OutputKept:
    """What is told to a run."""
    return OutputKept(last.number, last.total, last.place if last.lease == lease else 0)


def chunk_of(number: int, body: Any, written_at: int, lease: int, attempt: int) -> Chunk:
    return Chunk(number=number, body=bytes(body), at=at(written_at), lease=lease, attempt=attempt)
