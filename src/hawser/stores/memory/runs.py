"""The worker's side of the memory store once a job is in: claim, settle, extend, reclaim, beat, wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from hawser.clock import at, to_us
from hawser.job import Claimed, NewJob, State
from hawser.outcome import Step, abandoned, follow
from hawser.store import (
    EXPIRED,
    LEAVE_NOTHING,
    NO_ROOM_SET,
    SETTLE_GRACE,
    Beat,
    GroupWait,
    LeaseRef,
    LeaseStatus,
    Leave,
    Reclaimed,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
    WorkerSeen,
)
from hawser.stores.breakers import with_breakers
from hawser.stores.dependencies import any_waits, standing_for
from hawser.stores.limits import Rooms, bounded, is_shut
from hawser.stores.memory.group_rules import GroupRules
from hawser.stores.memory.heap import Heap
from hawser.stores.memory.row import Row
from hawser.stores.memory.turns import ClaimLevels, HeapLevel
from hawser.stores.memory.waits import HeldJobs
from hawser.stores.order import ageing_of, choose
from hawser.stores.tally import STALE_EXTENSION, events_of
from hawser.stores.waits import followers

_GRACE = to_us(SETTLE_GRACE)


class Runs(HeldJobs):
    """How jobs are run."""

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        with self._lock:
            now = self._clock.now()
            turn, self._claims = self._claims, self._claims + 1
            if self._expiries:
                self._expire(now)
            rooms = self._rooms(now)
            shares, left = bounded(queues, room, rooms)
            with self._without(leave.jobs, now):
                levels = self._levels(leave, now, rooms)
                chosen = choose(shares, limit, turn, now, levels.of, left, self._ageing)
                if self._limits:
                    self._limits.start((entry[3] for entry in chosen), now)
                claimed = [self._start(entry[3], worker, now, lease_for) for entry in chosen]
                levels.close(now)
            for job in claimed if self._breakers else ():
                if (kept := self._breakers.get(job.task)) is not None and kept.open:
                    self._breakers[job.task] = kept.probed(job.id, job.lease, now)
            return claimed

    def _ageing(self, queue: str) -> int | None:
        return ageing_of(self._policies.get(queue))

    async def expire(self, limit: int) -> int:
        with self._lock:
            return self._expire(self._clock.now(), limit)

    def _expire(self, now: int, limit: int | None = None) -> int:
        """Cancel the jobs that wait and are past their expiry, or some of them. A run is looked at when its job waits again."""
        waiting = (row for id in self._expiries.past(now) if (row := self._rows[id]).state is State.READY)
        count = 0
        for row in islice(waiting, limit):
            self._cancel_waiting(row, EXPIRED, now)
            count += 1
        return count

    def _levels(self, leave: Leave, now: int, rooms: Rooms) -> ClaimLevels:
        """The lanes that are neither paused, nor left to others, nor shut by a limit."""

        rules = self._group_rules(now)

        def read(queue: str) -> list[list[Heap] | HeapLevel]:
            if not self._is_open(queue, now, rooms):
                return []
            return self._ready.levels(queue, self._open_to(leave, now, rooms), now, self._weights, rules)

        return ClaimLevels(read)

    def _is_open(self, queue: str, now: int, rooms: Rooms) -> bool:
        return not self._paused("queue", queue, now) and not is_shut(rooms, "queue", queue)

    def _open_to(self, leave: Leave, now: int, rooms: Rooms) -> Callable[[str], bool]:
        return lambda task: task not in leave.tasks and not self._paused("task", task, now) and not is_shut(rooms, "task", task)

    def _rooms(self, now: int) -> Rooms:
        """What limits and open breakers leave to a claim."""
        rooms = self._limits.rooms(now, self._running) if self._limits else {}
        probes = {task: kept.probe_at for task, kept in self._breakers.items() if kept.open} if self._breakers else {}
        return with_breakers(rooms, probes, now)

    def _group_rules(self, now: int) -> GroupRules | None:
        """What limits per group say; None when there are none."""
        if not self._limits.per_group:
            return None
        return GroupRules(self._limits, self._depth.running_in_group, self._ready.first_of_group, self._rows, now)

    async def group_wait(self, id: str) -> GroupWait | None:
        with self._lock:
            row = self._rows.get(id)
            if row is None or row.state is not State.READY or row.held is not None or row.group is None:
                return None
            before = self._ready.before_in_turn(row)
            rules = self._group_rules(self._clock.now())
            limit = self._limits.of_task(row.task)
            if rules is None or limit is None or not limit.per_group:
                return GroupWait(None, 0, 0, None, None, False, *before)
            return GroupWait(limit, *rules.told(row.task, row.group), *before)

    @contextmanager
    def _without(self, ids: Collection[str], now: int) -> Iterator[None]:
        """Take these jobs out of their lanes for a moment."""
        aside = [row for id in ids if (row := self._rows.get(id)) is not None and row.state is State.READY]
        for row in aside:
            self._ready.set_aside(row)
        try:
            yield
        finally:
            for row in aside:
                self._ready.put_back(row, now)

    def _start(self, row: Row, worker: str, now: int, lease_for: float) -> Claimed:
        self._depth.move(row, -1)
        row.state = State.RUNNING
        row.attempt += 1
        row.lease += 1
        row.started_at = now
        row.worker = row.holder = worker
        row.lease_until = now + min(to_us(lease_for), to_us(row.new.timeout) + _GRACE)
        row.leased_for = row.lease_until - now
        self._leases.add(row)
        self._depth.move(row, +1)
        self._depth.tally(now, row.queue, row.task, "claimed")
        return row.claimed()

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        with self._lock:
            now = self._clock.now()
            answers = [self._settle(settlement, now) for settlement in settlements]
        self._bell.ring()
        return answers

    def _settle(self, settlement: Settlement, now: int) -> SettleAnswer:
        row = self._rows.get(settlement.id)
        if row is None or not self._holds(row, settlement.lease):
            if row is not None and row.state is not State.RUNNING and settlement.lease == row.lease == row.settled:
                after = max(0, row.run_at - now) / 1_000_000 if row.state is State.READY and row.held is None else None
                return SettleAnswer(Settled.REPEATED, row.task, row.queue, row.state, after, row.attempt, row.max_attempts)
            self._tally_stale(row, now)
            return SettleAnswer(Settled.LOST, row.task, row.queue) if row is not None else SettleAnswer(Settled.LOST)
        step = follow(settlement.outcome, attempt=row.attempt, max_attempts=row.max_attempts, cancel_asked=row.cancel_asked)
        row.settled, attempt = row.lease, row.attempt
        batch = self._batches.all.get(row.new.batch) if row.new.batch is not None else None
        if batch is not None:
            batch.expected += len(settlement.then)
        self._leave(row, step, now)
        if step.state is State.DONE and not settlement.keep:
            self._remove(row, now)
        if then := followers(settlement, step):
            self._follow(row, then, now)
        if batch is not None and settlement.then:
            batch.expected -= len(settlement.then)
            self._judge(batch, now)
        if step.hold is not None:
            self._hold_run(row, step.hold, now)
        return SettleAnswer(Settled.SETTLED, row.task, row.queue, step.state, step.due_in, attempt, row.max_attempts)

    def _follow(self, row: Row, jobs: Sequence[NewJob], now: int) -> None:
        """Add the jobs that follow from a run."""
        answers, added = self._sort_out(jobs, now)
        stands_for = standing_for(jobs, answers) if any_waits(added) else {}
        for job in added:
            self._add(job, now, row.new.id, stands_for, row.new.batch)
        self._join_holders(jobs, answers, now)
        self._tally_duplicates(jobs, answers, now)

    def _tally_stale(self, row: Row | None, now: int, event: str = "stale") -> None:
        self._depth.tally(now, row.queue if row else "", row.task if row else "", event)

    def _holds(self, row: Row, lease: int) -> bool:
        """The fence: the job still runs under this lease."""
        return row.state is State.RUNNING and row.lease == lease

    def _leave(self, row: Row, step: Step, now: int) -> None:
        """Take a row out of running, to where the step says."""
        if step.recorded:
            row.record(step.word, now, step.failure)
        for event in events_of(step, row.attempt):
            self._depth.tally(now, row.queue, row.task, event)
        self._depth.move(row, -1)
        row.state = step.state
        if step.state is not State.CANCELLED or step.reason is not None or not row.cancel_asked:
            row.reason = step.reason  # else it keeps the reason of the cancel
        if row.cancel_asked:
            self._asked.discard(row.new.id)
        row.result = step.result
        row.crashes += step.crashed
        row.worker = None
        row.lease_until = 0
        row.attempt = step.attempts_kept(row.attempt)
        row.returned += not step.burns
        self._leases.end()
        if step.state is State.READY:
            row.cancel_asked = False
            self._make_ready(row, now + to_us(step.after), now)
        else:
            self._finish(row, now)

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        with self._lock:
            now = self._clock.now()
            return [self._extend(ref, now, lease_for) for ref in leases]

    def _extend(self, ref: LeaseRef, now: int, lease_for: float) -> LeaseStatus:
        row = self._rows.get(ref.id)
        until = now if row is None else min(now + to_us(lease_for), row.started_at + to_us(row.new.timeout) + _GRACE)
        if row is None or not self._holds(row, ref.lease) or max(until, row.lease_until) <= now:
            self._tally_stale(row, now, STALE_EXTENSION)
            return LeaseStatus.LOST
        if until > row.lease_until:
            row.lease_until = until
            row.leased_for = until - now
        if ref.progress is not None:
            row.progress = ref.progress
        return LeaseStatus.CANCEL_ASKED if row.cancel_asked else LeaseStatus.HELD

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        with self._lock:
            rows = [(self._rows.get(ref.id), ref.lease) for ref in leases]
            return [row.holder if row is not None and row.lease == lease else None for row, lease in rows]

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        with self._lock:
            rows = (self._rows[id] for id in self._asked)
            return [LeaseRef(row.new.id, row.lease) for row in rows if row.worker in workers]

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        with self._lock:
            now = self._clock.now()
            self._cut_leases(now)
            reclaimed: list[Reclaimed] = []
            while len(reclaimed) < limit and (row := self._leases.expired(now)) is not None:
                reclaimed.append(self._reclaim(row, now))
            woken = self._wake_overdue(now)
        if reclaimed or woken:
            self._bell.ring()
        return reclaimed

    async def go_on(self) -> bool:
        if (overdue := self.any_overdue(self._clock.now())) is True:
            await self.reclaim(0)
        return overdue is not None

    def any_overdue(self, now: int) -> bool | None:
        """Whether the time of a wait is over; None when no wait has an end."""
        with self._lock:
            return self._events.any_overdue(now)

    def _reclaim(self, row: Row, now: int) -> Reclaimed:
        worker, attempt = row.worker or "", row.attempt
        renewed = row.lease_until - row.leased_for > row.started_at
        step = abandoned(worker, renewed=renewed, attempt=attempt, max_attempts=row.max_attempts, cancel_asked=row.cancel_asked)
        self._leave(row, step, now)
        row.lease += 1
        return Reclaimed(row.new.id, row.task, row.queue, worker, attempt, step.state, renewed, step.due_in)

    def _cut_leases(self, now: int) -> None:
        """After the clock was set back: no lease may have more time left than it was given."""
        if self._clock.set_back > self._cut_after:
            for row in self._leases.all():
                if row.lease_until - now > row.leased_for:
                    row.lease_until = now + row.leased_for
                    self._leases.shortened(row)
        self._cut_after = self._clock.set_back

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        with self._lock:
            now = at(self._clock.now())
            for beat in beats:
                known = self._workers.get(beat.worker)
                self._workers[beat.worker] = WorkerSeen(beat=beat, since=known.since if known else now, seen_at=now)
            for name in gone:
                self._workers.pop(name, None)

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        waiter = self._bell.join()
        try:
            with self._lock:
                due_in = self._due_in(queues, leave)
            await asyncio.wait((waiter,), timeout=timeout if due_in is None else min(timeout, due_in))
        finally:
            self._bell.leave(waiter)

    def _due_in(self, queues: Sequence[str], leave: Leave) -> float | None:
        """Seconds until a job of these queues may be claimed, 0 if one may be now, None if no job waits."""
        now = self._clock.now()
        rooms = self._rooms(now)
        with self._without(leave.jobs, now):
            open_ = [queue for queue in queues if self._is_open(queue, now, rooms)]
            rules = self._group_rules(now)
            dues = [self._ready.next_due(queue, self._open_to(leave, now, rooms), now, rules) for queue in open_]
            times = [due for due in dues if due is not None]
        times += [room.opens_at for room in rooms.values() if room.opens_at is not None]
        return max(0.0, (min(times) - now) / 1_000_000) if times else None
