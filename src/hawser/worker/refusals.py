"""What one worker process leaves to others: tasks that it does not know, jobs whose payload does not fit.

While two releases run at once, each takes what it can. A job that this process cannot run is given back at once, without an
attempt, and is not asked for again: others get it. Tasks that another living worker knows and this one does not are not even
asked for. When no living worker could accept a job for as long as was set, it is taken once more and declared dead.

Which worker could accept it is known from the signs of life: each worker says which tasks it knows, and for each a mark of its
signature. One whose mark has declined the job, here or elsewhere, would decline it again. The store keeps these marks and the
time.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from hawser.client.explain import ALIVE_FOR
from hawser.errors import HawserError
from hawser.job import Claimed, State
from hawser.outcome import MAX_ERROR, Dead, Failure, Outcome, Snoozed, cut
from hawser.store import EVERY_QUEUE, LEAVE_NOTHING, Beat, Declined, Leave, Store
from hawser.task import Task

_logger = logging.getLogger("hawser.worker")

REFUSALS_LOOK_EVERY_S: Final = 5.0
"""Seconds between looks at which tasks other workers know, and at what has been declined for long."""

MOST_DECLINED_JOBS: Final = 1_000
"""Jobs that are remembered as declined. Beyond them the whole task is left to others for a while: each claim names them all."""

REST: Final = 60.0
"""Seconds for that while."""

JUDGED: Final = 20
"""Declined jobs that one look asks the store about."""


def marks(tasks: Mapping[str, Task[..., Any]]) -> dict[str, str]:
    """The tasks by name, with a mark that is the same where the same payloads fit."""
    return {name: _mark(task) for name, task in tasks.items()}


def _mark(task: Task[..., Any]) -> str:
    try:
        shape = msgspec.json.encode(task.parameters.schema(), order="deterministic")
    except (HawserError, TypeError, ValueError):
        shape = str(inspect.signature(task.fn)).encode()
    return hashlib.sha256(shape).hexdigest()[:12]


class Left(msgspec.Struct):
    """A job that this process cannot run."""

    task: str
    queue: str
    lease: int
    marks: frozenset[str]
    """Of the signatures that it does not fit, as far as is known here."""
    seconds: float | None = None
    """For how long no worker has accepted it, by the store; None until the store has been told."""


class Refusals:
    """Belongs to one process. The store keeps for how long no worker accepts a job, so that the time goes on when this process
    ends, and is the same for all workers that decline the job."""

    def __init__(
        self,
        store: Store,
        worker: str,
        tasks: Mapping[str, Task[..., Any]],
        queues: Collection[str],
        unaccepted_after: float,
        left_out: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`left_out`: tasks that this worker was told not to run. Their jobs are never asked for."""
        self._store = store
        self._worker = worker
        self._left_out = frozenset(left_out)
        self._marks = marks(tasks)
        self._queues = frozenset(queues)
        self._after = unaccepted_after
        self._clock = clock
        self._left: dict[str, Left] = {}
        self._condemned: dict[str, float] = {}
        """Those that are taken once more, to be declared dead, and since when. Another process may be faster: then it is
        forgotten soon, so that a replay of the job begins anew."""
        self._others: list[Beat] = []
        self._resting: dict[str, float] = {}
        self._read_at = float("-inf")
        self._warned: set[str] = set()
        self.leave: Leave = Leave(self._left_out) if self._left_out else LEAVE_NOTHING
        """What the next claim leaves to others."""

    def decline(self, job: Claimed, why: str) -> Outcome:
        """What becomes of a job that this process cannot run."""
        why = cut(f"worker {self._worker} cannot run it: {why}", MAX_ERROR)
        if job.id in self._condemned:
            del self._condemned[job.id]
            return Dead(Failure(f"no living worker accepted it for {self._after:g} s: {why}"))
        if job.task not in self._warned:
            self._warned.add(job.task)
            _logger.warning("task %s: a job is left to other workers; %s", job.task, why)
        if len(self._left) >= MOST_DECLINED_JOBS:
            self._resting[job.task] = self._clock() + REST
        else:
            mark = self._marks.get(job.task, "")
            self._left[job.id] = Left(job.task, job.queue, job.lease, frozenset({mark}))
        self._remake()
        return Snoozed(0.0, why)

    async def refresh(self) -> None:
        """Learn what others know, and whether a living worker may still accept what was declined."""
        now = self._clock()
        if now - self._read_at < min(REFUSALS_LOOK_EVERY_S, self._after / 2):
            await self._tell([id for id, left in self._left.items() if left.seconds is None])
            return
        self._read_at = now
        self._others = await self._alive()
        self._resting = {task: until for task, until in self._resting.items() if until > now}
        self._condemned = {id: since for id, since in self._condemned.items() if now - since < REST}
        await self._tell(list(self._left))
        await self._judge(now)
        self._remake()

    async def _alive(self) -> list[Beat]:
        """The other workers that live and take jobs, by the store's time."""
        seen = await self._store.workers()
        if not seen:
            return []
        now = max(each.seen_at for each in seen)
        living = [each.beat for each in seen if (now - each.seen_at).total_seconds() < ALIVE_FOR]
        return [beat for beat in living if beat.worker != self._worker and not beat.draining]

    def _meets(self, beat: Beat) -> bool:
        """Whether another worker takes from a queue that this one takes from."""
        return EVERY_QUEUE in self._queues or any(map(beat.serves, self._queues))

    async def _tell(self, ids: Sequence[str]) -> None:
        """Note in the store that these jobs are declined here, and learn for how long they have been, and by which others."""
        if not ids:
            return
        answers = await self._store.decline([self._note(id, self._left[id]) for id in ids])
        for id, answer in zip(ids, answers, strict=True):
            if answer is None:
                del self._left[id]  # it has ended
            else:
                left = self._left[id]
                left.seconds, left.marks = answer.seconds, left.marks | answer.marks

    def _note(self, id: str, left: Left) -> Declined:
        acceptable = any(self._may_accept(beat, left) for beat in self._others)
        return Declined(id, left.lease, self._marks.get(left.task, ""), acceptable)

    def _may_accept(self, beat: Beat, left: Left) -> bool:
        """One of an older release, or that pulls over HTTP, does not say what it knows: it may."""
        if not beat.serves(left.queue):
            return False
        if beat.tasks is None:
            return True
        return left.task in beat.tasks and beat.tasks[left.task] not in left.marks

    async def _judge(self, now: float) -> None:
        """Take once more what no worker has accepted for so long."""
        ripe = [id for id, left in self._left.items() if left.seconds is not None and left.seconds >= self._after]
        for id in ripe[:JUDGED]:
            job = await self._store.get(id)
            if job is not None and job.state is State.READY:
                self._condemned[id] = now
            if job is None or job.state is not State.RUNNING:  # one that runs may yet be given back
                del self._left[id]

    def _remake(self) -> None:
        known = {task for beat in self._others if self._meets(beat) for task in beat.tasks or ()}
        tasks = frozenset(known - self._marks.keys()) | self._left_out | self._resting.keys()
        self.leave = Leave(tasks, frozenset(self._left))
