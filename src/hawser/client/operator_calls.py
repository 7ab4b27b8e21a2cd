"""What an operator does through an app: look at jobs and queues, cancel, requeue, pause, limit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack, cast

from hawser.backoff import BackoffRule
from hawser.client import operations, operator_fields, spreading
from hawser.client.connection import Connection, sync
from hawser.client.operations import JobFilter
from hawser.errors import ConfigError
from hawser.handle import Handle
from hawser.job import Job, NewJob
from hawser.policy import DEFAULT_AGEING
from hawser.policy import checked as checked_policy
from hawser.redaction import names_of, restored
from hawser.store import JOBS_PER_PAGE, Acted, Actor, BreakerStatus, Chunk, LimitUse, Page, QueueStats, RecordedStep, Weight
from hawser.task import Task, asks_for_confirmation
from hawser.task_options import JobOptions, JobSettings
from hawser.value.fingerprint import Group

_logger = logging.getLogger("hawser.app")


class OperatorCalls:
    """The part of an app that operators use. `by` and `reason` go into the audit record."""

    _connection: Connection
    _tasks: dict[str, Task[..., Any]]

    def _job(self, name: str, payload: Mapping[str, Any] | None, options: JobOptions) -> NewJob:
        raise NotImplementedError

    async def aget(self, id: str) -> Job:
        """The whole job with its attempts; `JobNotFound` when the id is unknown."""
        return await operations.get(await self._connection.ready(), id)

    async def afind(self, *, after: str | None = None, limit: int = JOBS_PER_PAGE, **filter: Unpack[JobFilter]) -> Page:
        """Jobs that match, newest first; go on with `after=page.next` until that is None."""
        wanted, limit = operations.filter_of(filter), operator_fields.checked_limit(limit)
        operations.check_argument(wanted, self._tasks)
        return await (await self._connection.ready()).find(wanted, after, limit)

    async def astats(self, queue: str | None = None) -> QueueStats:
        """The figures of one queue, or of all."""
        if queue is not None:
            operator_fields.checked_name("queue", queue)
        return await (await self._connection.ready()).stats(queue)

    async def asteps(self, id: str) -> list[RecordedStep]:
        """The recorded steps of a job, in their order: name, value, when, and until when a sleep lasts."""
        store = await self._connection.ready()
        await operations.get(store, id)
        return await store.steps(id)

    async def aoutput(self, id: str, *, after: int = 0) -> list[Chunk]:
        """What the runs of a job have written with `ctx.write`, in order, behind the chunk with that number; none when there is
        nothing new. To follow a job, ask again with the number of the last chunk."""
        store = await self._connection.ready()
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise ConfigError(f"after: {after!r} is not a number of a chunk; 0 begins with the first")
        await operations.get(store, id)
        chunks: list[Chunk] = []
        while more := await store.output(id, chunks[-1].number if chunks else after):
            chunks += more
        return chunks

    async def acancel(self, id: str, *, reason: str | None = None, by: str = "app") -> Acted:
        """End a waiting job (`Acted.DONE`), or ask the worker of a running one to stop it (`Acted.ASKED`)."""
        return await operations.cancel(await self._connection.ready(), id, Actor(by, reason))

    async def arequeue(
        self,
        id: str | None = None,
        *,
        group: str | None = None,
        spread: float | timedelta | None = None,
        confirm: bool = False,
        reason: str | None = None,
        by: str = "app",
    ) -> int:
        """Run a dead or cancelled job again, with attempts from zero, or all dead jobs of a group; says how many.

        The jobs of a group fall due evenly over `spread` seconds, if given. Their times are in the store when this returns.
        """
        store = await self._connection.ready()
        named = operations.one_or_group(id, group)
        check = partial(self._need_confirmation, confirm=confirm)
        if spread is not None:
            if not isinstance(named, Group):
                raise ConfigError("spread: one job cannot be spread; give group=…, or app.change(id, delay=…) behind the requeue")
            return await spreading.requeue_spread(store, named, Actor(by, reason), spread, check)
        if isinstance(named, Group):
            return await operations.on_group(store, store.requeue, named, Actor(by, reason), check)
        check(await operations.get(store, named))
        await operations.requeue(store, named, Actor(by, reason))
        return 1

    async def arewind(
        self, id: str, *, to: str | None, confirm: bool = False, reason: str | None = None, by: str = "app"
    ) -> None:
        """Run a dead or cancelled job again from behind one of its steps: what was recorded later is forgotten, and made again.
        With `to=None` all its steps are. Jobs that it gathered are not run again: requeue those, too."""
        store = await self._connection.ready()
        self._need_confirmation(await operations.get(store, id), confirm=confirm)
        await operations.rewind(store, id, to, Actor(by, reason))

    async def areplay(
        self,
        id: str,
        payload: Mapping[str, Any],
        *,
        confirm: bool = False,
        reason: str | None = None,
        by: str = "app",
        **options: Unpack[JobSettings],
    ) -> Handle[Any]:
        """Put a new job with another payload in the place of a dead one, whose child it becomes. Other options stay.

        A key that was held only while the job was live goes along; a window or a hold for ever stays with the dead job.
        A redacted argument that is given as `•••` keeps its value.
        """
        store = await self._connection.ready()
        dead = await operations.get(store, id)
        self._need_confirmation(dead, confirm=confirm)
        kept: JobSettings = {
            "queue": dead.queue,
            "priority": dead.priority,
            "max_attempts": dead.max_attempts,
            "timeout": dead.timeout,
            "tags": dead.tags,
            "key": None if dead.key_ttl else dead.key,
        }
        payload = restored(names_of(self._tasks, dead.task), payload, dead.body)
        job = self._job(dead.task, payload, cast("JobOptions", {**kept, **options}))
        return await operations.replay(store, id, job, Actor(by, reason), self._connection.results)

    async def adiscard(
        self, id: str | None = None, *, group: str | None = None, reason: str | None = None, by: str = "app"
    ) -> int:
        """Turn a dead job into a cancelled one, with the reason kept, or all dead jobs of a group; says how many."""
        store, named = await self._connection.ready(), operations.one_or_group(id, group)
        if isinstance(named, Group):
            return await operations.on_group(store, store.discard, named, Actor(by, reason))
        await operations.discard(store, named, Actor(by, reason))
        return 1

    async def achange(
        self,
        id: str,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        reason: str | None = None,
        by: str = "app",
    ) -> None:
        """Give a waiting job another queue, priority or due time; `delay=0` makes it due now. Others raise `WrongState`."""
        change = operations.change_of(queue, priority, run_at, delay)
        await operations.change(await self._connection.ready(), id, change, Actor(by, reason))

    async def adead_letter(self, id: str, *, reason: str | None = None, by: str = "app") -> None:
        """End a waiting job as dead, with the reason kept: for one that fails at every attempt and would go on to be tried."""
        await operations.dead_letter(await self._connection.ready(), id, Actor(by, reason))

    async def areclaim_worker(self, worker: str, *, reason: str | None = None, by: str = "app") -> int:
        """Take back the runs of a worker that is known to be dead, without waiting for their leases to run out; says how many.

        If it lives after all, what it still writes of these runs is refused.
        """
        return await operations.reclaim_worker(await self._connection.ready(), worker, Actor(by, reason))

    async def apause(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        by: str = "app",
    ) -> None:
        """Stop starting jobs of a queue or a task, in every worker, until resumed or until that instant. Jobs stay safe."""
        target, until = operations.target(queue, task), operator_fields.checked_time("until", until)
        await (await self._connection.ready()).pause(target, Actor(by, reason), until)

    async def aresume(
        self, *, queue: str | None = None, task: str | None = None, reason: str | None = None, by: str = "app"
    ) -> bool:
        """End a pause; False when there was none."""
        target = operations.target(queue, task)
        return await (await self._connection.ready()).resume(target, Actor(by, reason))

    async def aset_limit(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        running: int | None = None,
        rate: str | None = None,
        max_depth: int | None = None,
        per_group: bool = False,
        ordered: bool = False,
        reason: str | None = None,
        by: str = "app",
    ) -> None:
        """Limit how many jobs of a queue or a task run at once and start in a period, over all workers, in place of what was set
        before; and how many may wait in a queue, over which enqueue raises `QueueFull`. `per_group` counts the jobs of each group
        of a task for themselves, `ordered` starts them strictly in their order.

        It wins over what the task declares, also when it says nothing. `clear_limit` takes it back.
        """
        store, fields = await self._connection.ready(), operations.LimitFields(running, rate, max_depth, per_group, ordered)
        _, doubted = await operations.set_limit(store, self._tasks, (queue, task), fields, Actor(by, reason))
        if doubted is not None:
            _logger.warning(doubted)

    async def aclear_limit(
        self, *, queue: str | None = None, task: str | None = None, reason: str | None = None, by: str = "app"
    ) -> bool:
        """Take back what `set_limit` set: what the task declares holds again. False when nothing was set."""
        target = operations.target(queue, task)
        return await (await self._connection.ready()).set_limit(target, None, Actor(by, reason))

    async def alimits(self) -> list[LimitUse]:
        """The limits on queues and tasks, each with how much of it is in use."""
        return await (await self._connection.ready()).limits()

    async def aopen_breaker(self, task: str, *, reason: str | None = None, by: str = "app") -> bool:
        """Open the breaker of a task by hand: none of its jobs starts until `close_breaker`. False when it was so already."""
        store = await self._connection.ready()
        return await operations.switch_breaker(store, self._tasks, task, Actor(by, reason), open=True)

    async def aclose_breaker(self, task: str, *, reason: str | None = None, by: str = "app") -> bool:
        """Close the breaker of a task by hand; what failed before does not count. False when it was closed."""
        store = await self._connection.ready()
        return await operations.switch_breaker(store, self._tasks, task, Actor(by, reason), open=False)

    async def abreakers(self) -> list[BreakerStatus]:
        """The breakers that are declared or open, by task."""
        return await (await self._connection.ready()).breakers()

    async def aset_weight(self, *, queue: str, group: str, weight: int, reason: str | None = None, by: str = "app") -> None:
        """Say how many places a turn a group of a queue is offered. All have 1 unless something else is said."""
        checked = operations.weight(queue, group, weight)
        await (await self._connection.ready()).set_weight(checked, Actor(by, reason))

    async def aweights(self, queue: str | None = None) -> list[Weight]:
        """The weights that are not 1, of one queue or of all."""
        if queue is not None:
            operator_fields.checked_name("queue", queue)
        return await (await self._connection.ready()).weights(queue)

    async def aset_policy(
        self,
        queue: str,
        *,
        max_attempts: int | None = None,
        backoff: BackoffRule | None = None,
        concurrency: int | None = None,
        ageing: float | None = DEFAULT_AGEING,
        reason: str | None = None,
        by: str = "app",
    ) -> None:
        """Set how a queue's jobs are run where neither the job nor its task says so, in place of the policy before.

        `concurrency` is how many of the queue's jobs one worker process runs at once. Workers apply it within seconds.
        Lower priorities that have been due for `ageing` seconds get a tenth of the places; None is strict priority.
        """
        name = operator_fields.checked_name("queue", queue)
        said = {"max_attempts": max_attempts, "backoff": backoff, "concurrency": concurrency, "ageing": ageing}
        policy = checked_policy(said)
        await (await self._connection.ready()).set_policy(name, policy, Actor(by, reason))

    def _need_confirmation(self, job: Job, *, confirm: bool) -> None:
        if asks_for_confirmation(self._tasks, job):
            operations.need_confirmation(job, confirm=confirm)

    # The synchronous twins.

    get = sync(aget)
    find = sync(afind)
    stats = sync(astats)
    steps = sync(asteps)
    output = sync(aoutput)
    cancel = sync(acancel)
    requeue = sync(arequeue)
    rewind = sync(arewind)
    replay = sync(areplay)
    discard = sync(adiscard)
    change = sync(achange)
    dead_letter = sync(adead_letter)
    reclaim_worker = sync(areclaim_worker)
    pause = sync(apause)
    resume = sync(aresume)
    set_limit = sync(aset_limit)
    clear_limit = sync(aclear_limit)
    limits = sync(alimits)
    open_breaker = sync(aopen_breaker)
    close_breaker = sync(aclose_breaker)
    breakers = sync(abreakers)
    set_policy = sync(aset_policy)
    set_weight = sync(aset_weight)
    weights = sync(aweights)
