"""The operator's side of the PostgreSQL store: what people, the API and charts ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.breaker import Breaker
from hawser.job import Job, NewJob
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import (
    JOBS_PER_PAGE,
    Acted,
    Actor,
    AuditRecord,
    BreakerStatus,
    BulkOperation,
    BulkPlan,
    BulkStep,
    Change,
    DeadGroups,
    DeadLetters,
    Filter,
    GroupWait,
    JobEnd,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.stores.order import spread_delays
from hawser.stores.postgres.api_keys import ApiKeys
from hawser.stores.postgres.batches import BatchStatements
from hawser.stores.postgres.breakers import BreakerStatements
from hawser.stores.postgres.bulk import Bulks
from hawser.stores.postgres.charts import Charts
from hawser.stores.postgres.declined import DeclinedJobs
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.edits import EditStatements
from hawser.stores.postgres.history import History
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.limits import LimitStatements
from hawser.stores.postgres.operations import Action, OperatorStatements
from hawser.stores.postgres.queries import Queries
from hawser.stores.postgres.server import Server

T = TypeVar("T")


class OperatorSide:
    """One short method for each one of `Operator`, `Editor`, `BulkStore`, `Watcher` and `KeyStore`."""

    def __init__(
        self,
        server: Server,
        catalog: LaneCatalog,
        dependencies: DependencyStatements,
        wake: Callable[[set[str]], list[str]],
    ) -> None:
        self._dependencies = dependencies
        self._history = History(server, catalog)
        self._operations = OperatorStatements(server, catalog)
        self._batches = BatchStatements(server, catalog, self._operations, dependencies, wake)
        self._edits = EditStatements(server, self._operations)
        self._declined = DeclinedJobs(server)
        self._bulks = Bulks(server, self._operations, self._edits)
        self._queries = Queries(server, catalog)
        self._charts = Charts(server, catalog, self._queries)
        self._api_keys = ApiKeys(server)
        self._limits = LimitStatements(server, catalog)
        self._breakers = BreakerStatements(server, catalog)

    async def waits(self, id: str) -> Waits | None:
        return await self._queries.waits(id)

    async def open_batch(self, batch: NewBatch) -> bool:
        return await self._batches.open(batch)

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        return await self._batches.close(id, actor)

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        return await self._batches.cancel(id, actor)

    async def batch(self, id: str) -> Batch | None:
        return await self._batches.get(id)

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        return await self._batches.page(state, after, limit)

    async def failovers(self) -> int:
        """Nothing in a database says that it was a replica's."""
        return 0

    async def live_batches(self) -> dict[BatchState, int]:
        return await self._batches.live()

    async def group_wait(self, id: str) -> GroupWait | None:
        return await self._queries.group_wait(id)

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return await self._queries.ended(ids)

    async def get(self, id: str) -> Job | None:
        return await self._queries.get(id)

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        return await self._queries.find(filter, after, limit)

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        return await self._queries.dead_letters(queue, task, after, limit)

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        return await self._queries.dead_groups(queue, task, limit)

    async def group_dead(self, limit: int) -> int:
        if not await self._queries.ungrouped(1):
            return 0
        return await self._operations.group_dead(limit)

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._queries.stats(queue)

    async def queues(self) -> dict[str, QueueStats]:
        return await self._queries.queues()

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._then_go_on(await self._operations.act("cancel", ids, actor, Action.cancel))

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        later = dict(zip(ids, spread_delays(len(ids), spread, delay), strict=True))
        do = partial(Action.requeue, later=later)
        return await self._then_go_on(await self._operations.act("requeue", ids, actor, do))

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        [answer] = await self._operations.act("rewind", [id], actor, lambda action, ids: action.rewind(ids, to))
        return answer

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._then_go_on(await self._operations.act("discard", ids, actor, Action.discard))

    async def _then_go_on(self, answer: T) -> T:
        """Jobs may have ended that others wait for."""
        if self._dependencies.in_use:
            await self._dependencies.go_on("operate")
        return answer

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        return await self._then_go_on(await self._operations.replace(id, job, actor))

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._edits.change(ids, change, actor)

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._then_go_on(await self._edits.dead_letter(ids, actor))

    async def end_leases(self, worker: str, actor: Actor) -> int:
        return await self._edits.end_leases(worker, actor)

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        await self._operations.pause(target, actor, until)

    async def resume(self, target: Target, actor: Actor) -> bool:
        return await self._operations.resume(target, actor)

    async def pauses(self) -> list[Pause]:
        return await self._queries.pauses()

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        await self._operations.set_weight(weight, actor)

    async def weights(self, queue: str | None = None) -> list[Weight]:
        return await self._queries.weights(queue)

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        return await self._limits.set(target, limit, actor)

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        await self._limits.declare(limits)

    async def limits(self) -> list[LimitUse]:
        return await self._limits.uses()

    async def declare_breakers(self, breakers: Mapping[str, Breaker | None]) -> None:
        await self._breakers.declare(breakers)

    async def breakers(self) -> list[BreakerStatus]:
        return await self._breakers.statuses()

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return await self._breakers.judge(verdicts)

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        return await self._breakers.open_by_hand(task, actor)

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        return await self._breakers.close_by_hand(task, actor, counted)

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        await self._operations.set_policy(queue, policy, actor)

    async def policies(self) -> dict[str, QueuePolicy]:
        return await self._queries.policies()

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        await self._bulks.forget()
        await self._declined.forget()
        await self._limits.recount()
        await self._limits.forget_groups()
        await self._limits.forget_idle_groups()
        await self._batches.recount()
        await self._batches.prune(retention, limit)
        await self._dependencies.tell_missed()
        return await self._then_go_on(await self._history.prune(retention, by_task, limit))

    async def workers(self) -> list[WorkerSeen]:
        return await self._queries.workers()

    async def note(self, action: str, target: str, actor: Actor) -> None:
        await self._operations.note(action, target, actor)

    async def audit(
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        return await self._queries.audit(limit, before, action, by)

    # Bulk operations.

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        return await self._bulks.start(id, plan, owner)

    async def bulk(self, id: str) -> BulkOperation | None:
        return await self._bulks.get(id)

    async def bulks(self) -> list[BulkOperation]:
        return await self._bulks.latest()

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        return await self._then_go_on(await self._bulks.step(step))

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        return await self._bulks.take(owner, limit)

    async def release_bulk(self, id: str, turn: int) -> None:
        await self._bulks.release(id, turn)

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        return await self._bulks.stop(id, actor)

    # Charts and alarms.

    async def lanes(self) -> list[LaneDepth]:
        return await self._charts.lanes()

    async def task_depths(self) -> list[TaskDepth]:
        return await self._charts.task_depths()

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._charts.measure(measured)

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._charts.rollups(minutes, queue, task)

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        return await self._charts.times(minutes, queue)

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        return await self._charts.event_counts(minutes, events, back)

    # Keys of the HTTP API.

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._api_keys.put(key, lasts, actor)

    async def api_keys(self) -> list[KeyRecord]:
        return await self._api_keys.records()

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._api_keys.revoke(id, actor)

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._api_keys.use(ids)
