"""The output of one run: what `ctx.write` was given and the store does not have yet."""

from __future__ import annotations

from threading import Lock
from typing import Any

from hawser.errors import LeaseLost, OutputFull
from hawser.job import Claimed
from hawser.store import MAX_CHUNK, MAX_CHUNKS, MAX_OUTPUT, NewOutput, OutputKept
from hawser.value.json_value import to_json


def chunk_body(value: Any) -> bytes:
    """A chunk as JSON text; `InvalidJob` says what is wrong with it."""
    return to_json("chunk", value, MAX_CHUNK)


class RunOutput:
    """Chunks in their order. Handlers add them from any thread; others take them to the store, and tell what it said.

    Those who take them may overlap: the store knows the place of each chunk in its run, and keeps none twice.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._chunks: list[bytes] = []
        """What the store has not said to have."""
        self._kept = 0
        """How many chunks of this run the store has."""
        self._size = 0
        """Bytes of this run."""
        self._earlier_chunks = 0
        self._earlier_size = 0
        """What earlier runs of the job have written, as far as the store has said it."""
        self._told = False
        """Whether those who take chunks know that there are some."""
        self._lost = False
        self.cut = False
        """Whether the store had no room for a chunk."""

    def add(self, body: bytes) -> bool:
        """Add a chunk. True when those who take chunks are to be told. `OutputFull` when the job may have no more."""
        with self._lock:
            if self._lost:
                raise LeaseLost("write: the lease of this run is gone, so another run may go on with the job; end this one")
            size, chunks = self._earlier_size + self._size + len(body), self._earlier_chunks + self._kept + len(self._chunks)
            if self.cut or size > MAX_OUTPUT or chunks >= MAX_CHUNKS:
                raise OutputFull(
                    f"write: a job may write {MAX_OUTPUT // 1024:,} KiB of output in {MAX_CHUNKS:,} chunks of at most "
                    f"{MAX_CHUNK // 1024} KiB, of all its runs together, and this chunk of {len(body):,} bytes is too much; "
                    "write less, or keep it elsewhere and write where"
                )
            self._append(body)
            told, self._told = self._told, True
            return not told

    def _append(self, body: bytes) -> None:
        self._chunks.append(body)
        self._size += len(body)

    def relay(self, body: bytes) -> bool:
        """As `add`, of a chunk that a child process has let through."""
        with self._lock:
            self._append(body)
            told, self._told = self._told, True
            return not told

    def pending(self, job: Claimed) -> NewOutput | None:
        """What is to be written of this run of a job; None when there is nothing, or nothing will be taken."""
        with self._lock:
            self._told = False
            if not self._chunks or self._lost or self.cut:
                return None
            return NewOutput(id=job.id, lease=job.lease, attempt=job.attempt, first=self._kept, chunks=tuple(self._chunks))

    def answered(self, sent: NewOutput, kept: OutputKept | None) -> None:
        """What the store said."""
        with self._lock:
            if kept is None:
                self._lost = True
                return
            new = max(0, kept.of_run - self._kept)
            of_run = self._size - sum(map(len, self._chunks[new:]))
            del self._chunks[:new]
            self._kept += new
            self._earlier_chunks, self._earlier_size = kept.chunks - kept.of_run, kept.size - of_run
            self.cut = kept.of_run < sent.first + len(sent.chunks)
