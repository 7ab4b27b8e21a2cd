"""The output of jobs, in the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.store import OUTPUT_READ, Chunk, NewOutput, OutputKept
from hawser.stores.memory.steps import Steps
from hawser.stores.output import LastChunk, appended, chunk_of, kept_of


class Outputs(Steps):
    """What runs write while they run, by job, under the lock of the store."""

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        with self._lock:
            now = self._clock.now()
            return [self._write_output(output, now) for output in outputs]

    def _write_output(self, output: NewOutput, now: int) -> OutputKept | None:
        row = self._rows.get(output.id)
        if row is None or not self._holds(row, output.lease):
            return None
        there = self._outputs.get(output.id, [])
        last = LastChunk(*there[-1][:4]) if there else LastChunk()
        for kept in appended(last, output):
            last = kept.last
            self._outputs.setdefault(output.id, []).append((*last, kept.body, now, output.attempt))
        return kept_of(last, output.lease)

    async def output(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        with self._lock:
            found = self._outputs.get(id, [])[after : after + limit]
            return [
                chunk_of(number, body, written_at, lease, attempt) for number, _, lease, _, body, written_at, attempt in found
            ]
