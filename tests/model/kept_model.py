"""The oracle of what is kept beside jobs: their output, and operations on many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hawser.clock import Clock, at, from_datetime, to_us
from hawser.job import State
from hawser.store import BULK_SILENCE, MAX_OUTPUT, BulkOperation, BulkPlan, BulkState, BulkStep, Chunk, NewOutput, OutputKept


@dataclass
class KeptJob:
    """A job with what its runs wrote: number, lease, attempt, when and what of each chunk."""

    state: State = State.READY
    attempt: int = 0
    lease: int = 0
    asked: bool = False
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(chunk.body) for chunk in self.chunks)

    def of_run(self, lease: int) -> int:
        """A run that came after others goes on where its own output ends: nothing of theirs is its own."""
        return sum(chunk.lease == lease for chunk in self.chunks)


class KeptModel:
    """All jobs and operations of a store."""

    claims = 0

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[str, KeptJob] = {}
        self.bulks: dict[str, BulkOperation] = {}

    # Output.

    def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        return [self._write(output) for output in outputs]

    def _write(self, output: NewOutput) -> OutputKept | None:
        job = self.jobs.get(output.id)
        if job is None or job.state is not State.RUNNING or job.lease != output.lease:
            return None
        for place, body in enumerate(output.chunks, output.first):
            if place < job.of_run(output.lease):
                continue
            if place > job.of_run(output.lease) or job.size + len(body) > MAX_OUTPUT:
                break
            now = at(self.clock.now())
            number = len(job.chunks) + 1
            job.chunks.append(Chunk(number=number, body=body, at=now, lease=output.lease, attempt=output.attempt))
        return OutputKept(len(job.chunks), job.size, job.of_run(output.lease))

    def output(self, id: str, after: int, limit: int) -> list[Chunk]:
        return self.jobs[id].chunks[after : after + limit] if id in self.jobs else []

    # What becomes of jobs.

    def start(self, id: str) -> None:
        job = self.jobs[id]
        job.state, job.attempt, job.lease = State.RUNNING, job.attempt + 1, job.lease + 1

    def end(self, id: str, state: State) -> None:
        job = self.jobs[id]
        job.state = State.CANCELLED if job.asked and state is State.READY else state
        job.asked = False

    def lose_all(self) -> set[str]:
        lost = {id for id, job in self.jobs.items() if job.state is State.RUNNING}
        for id in lost:
            self.jobs[id].lease += 1
            self.end(id, State.READY)
        return lost

    def _act(self, id: str, action: str) -> bool:
        """Whether anything was changed."""
        job = self.jobs.get(id)
        if job is None:
            return False
        match action:
            case "requeue" if job.state in (State.DEAD, State.CANCELLED):
                job.state, job.attempt = State.READY, 0
            case "discard" if job.state is State.DEAD:
                job.state = State.CANCELLED
            case "cancel" if job.state is State.READY:
                job.state = State.CANCELLED
            case "cancel" if job.state is State.RUNNING:
                job.asked = True
            case _:
                return False
        return True

    # Operations.

    def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        now = at(self.clock.now())
        self.bulks.setdefault(id, BulkOperation(id=id, plan=plan, owner=owner, started_at=now, seen_at=now))
        return self.shown(id)

    def running_bulks(self) -> list[BulkOperation]:
        return [bulk for bulk in self.bulks.values() if bulk.state is BulkState.RUNNING]

    def shown(self, id: str) -> BulkOperation:
        return msgspec.structs.replace(self.bulks[id], interrupted=self._is_interrupted(self.bulks[id]))

    def bulk(self, id: str) -> BulkOperation | None:
        return self.shown(id) if id in self.bulks else None

    def _is_interrupted(self, bulk: BulkOperation) -> bool:
        silence = self.clock.now() - from_datetime(bulk.seen_at)
        return bulk.state is BulkState.RUNNING and silence >= to_us(BULK_SILENCE)

    def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        bulk = self.bulks.get(step.id)
        if bulk is None or bulk.state is not BulkState.RUNNING or (bulk.turn, bulk.cursor) != (step.turn, step.behind):
            return None
        did = sum([self._act(id, bulk.plan.action) for id in step.ids])
        now = at(self.clock.now())
        self.bulks[step.id] = msgspec.structs.replace(
            bulk,
            cursor=step.cursor,
            done=bulk.done + did,
            skipped=bulk.skipped + step.skipped + len(step.ids) - did,
            state=step.ends or BulkState.RUNNING,
            error=step.error,
            seen_at=now,
            ended_at=now if step.ends else None,
        )
        return self.bulks[step.id]

    def take_bulks(self, owner: str, taken: set[str]) -> None:
        """These were taken over."""
        for id in taken:
            bulk = self.bulks[id]
            self.bulks[id] = msgspec.structs.replace(bulk, owner=owner, turn=bulk.turn + 1, seen_at=at(self.clock.now()))

    def interrupted(self) -> set[str]:
        return {id for id, bulk in self.bulks.items() if self._is_interrupted(bulk)}

    def stop_bulk(self, id: str) -> BulkOperation | None:
        bulk = self.bulks.get(id)
        if bulk is not None and bulk.state is BulkState.RUNNING:
            self.bulks[id] = msgspec.structs.replace(bulk, state=BulkState.STOPPED, ended_at=at(self.clock.now()))
        return self.bulk(id)
