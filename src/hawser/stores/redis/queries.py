"""What an operator reads: jobs, dead letters, figures, controls, audit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from hawser.clock import at, from_datetime, to_us
from hawser.job import Job
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import (
    ERROR_TOLD,
    GONE,
    WAIT_COUNTED,
    WAITS_TOLD,
    WORKER_KEPT,
    AuditRecord,
    DeadGroup,
    DeadGroups,
    DeadLetter,
    DeadLetters,
    Filter,
    GroupWait,
    JobEnd,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    Target,
    Upstream,
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import KeyRecord
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.stores.group_limits import GROUPS_COUNTED
from hawser.stores.limits import KeptLimit, Window
from hawser.stores.record import BLANK, audit_of, end_of, key_of, letter_of, pause_of, worker_of
from hawser.stores.redis.codec import STATES, pack, raw, record_of, shown_job, text, unpack
from hawser.stores.redis.reading import JoinedReads
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument
from hawser.stores.tally import attempts_p99, event_of, rates, rolled, times_of

JOBS_PER_LOOK: Final = 1_000
"""Jobs that one script looks at: about 3 ms of the server."""

SCRIPTS_PER_PAGE: Final = 5
"""Scripts for one page, which may then have fewer jobs than it was asked for."""

Pairs = Iterator[tuple[str, Any]]


class Queries:
    """What people, the API and charts look at."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._hashes = JoinedReads(server)

    async def get(self, id: str) -> Job | None:
        view = await self._server.look("get", raw(id))
        return shown_job(view) if view else None

    async def waits(self, id: str) -> Waits | None:
        found = await self._server.look("waits", raw(id), WAITS_TOLD)
        if not found:
            return None
        total, left, *told = found
        rows = zip(told[::3], told[1::3], told[2::3], strict=True)
        upstream = (Upstream(text(id), STATES[state], name.decode() or None) for id, state, name in rows)
        return Waits(total, left, tuple(upstream))

    async def group_wait(self, id: str) -> GroupWait | None:
        found = await self._server.look("group_wait", raw(id), WAIT_COUNTED)
        if not found:
            return None
        limit, running, started, opens_at, first, first_runs, groups, jobs = found
        opens = at(int(opens_at)) if opens_at else None
        head = text(first) if first else None
        return GroupWait(_limit(limit), running, started, opens, head, bool(first_runs), groups, jobs)

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        found = await self._server.look("ended", *map(raw, ids)) if ids else []
        return [_end(*row) for row in found]

    async def find(self, filter: Filter, after: str | None, limit: int) -> Page:
        wanted = pack(_filter(filter))
        jobs: list[Job] = []
        searched, behind = 0, b"" if after is None else _cursor(after)
        for _ in range(SCRIPTS_PER_PAGE):
            looked, next_, views = await self._server.look("find", wanted, behind, limit - len(jobs), JOBS_PER_LOOK)
            jobs += map(shown_job, views)
            searched += looked
            behind = next_
            if not behind or len(jobs) >= limit:
                break
        return Page(jobs, text(behind) if behind else None, searched)

    async def dead_letters(self, queue: str | None, task: str | None, after: str | None, limit: int) -> DeadLetters:
        behind = b"" if after is None else _cursor(after)
        looked, next_, found = await self._server.look("dead_letters", queue or "", task or "", behind, limit)
        return DeadLetters([_letter(*row) for row in found], looked, text(next_) if next_ else None)

    async def dead_groups(self, queue: str | None, task: str | None, limit: int) -> DeadGroups:
        found: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in await self._server.look("dead_groups", queue or "", task or ""):
            found[row[1].decode(), row[2].decode()].append(row)
        groups = [_group(name, rows) for name, rows in found.items()]
        groups.sort(key=lambda group: (-group.count, group.task, group.fingerprint))
        return DeadGroups(groups[:limit], 0, len(groups) > limit)

    async def stats(self, queue: str | None) -> QueueStats:
        now, first, *rows = await self._server.look("stats", *([] if queue is None else [queue]))
        return _stats(rows, int(now), first or None)

    async def queues(self) -> dict[str, QueueStats]:
        now, first, *rows = await self._server.look("stats")
        return {row[0].decode(): _stats([row], int(now), first or None) for row in sorted(rows)}

    async def _read(self, *names: str) -> tuple[int, list[Pairs]]:
        now, hashes = await self._hashes.of(*names)
        return now, [_pairs(flat) for flat in hashes]

    async def failovers(self) -> int:
        _, [found] = await self._read("epoch")
        return int(dict(found).get("failovers", 0))

    async def pauses(self) -> list[Pause]:
        now, [found] = await self._read("pauses")
        pauses = []
        for name, packed in found:
            kind, _, target = name.partition("|")
            since, until, reason, by = unpack(packed)
            if not until or until > now:
                pauses.append(pause_of(cast("Literal['queue', 'task']", kind), target, since, until or None, reason or None, by))
        return pauses

    async def weights(self, queue: str | None) -> list[Weight]:
        _, [found] = await self._read("weights")
        named = ((field.partition("|"), int(weight)) for field, weight in found)
        weights = [Weight(name, group, weight) for (name, _, group), weight in named]
        of_queue = [weight for weight in weights if queue in (None, weight.queue)]
        return sorted(of_queue, key=lambda weight: (weight.queue, weight.group))

    async def limits(self) -> list[LimitUse]:
        now, *rows = await self._server.look("limits")
        uses = [_use(int(now), *row) for row in rows]
        return sorted(uses, key=lambda use: (use.target.kind, use.target.name))

    async def policies(self) -> dict[str, QueuePolicy]:
        _, [found] = await self._read("policies")
        return {queue: msgspec.json.decode(text, type=QueuePolicy) for queue, text in found}

    async def workers(self) -> list[WorkerSeen]:
        now, [found] = await self._read("workers")
        rows = (unpack(packed) for _, packed in found)
        seen = [worker_of(since, seen, about) for since, seen, about in rows if seen > now - to_us(WORKER_KEPT)]
        return sorted(seen, key=lambda worker: (worker.since, worker.beat.worker))

    async def api_keys(self) -> list[KeyRecord]:
        now, [found] = await self._read("apikeys")
        rows = (unpack(packed) for _, packed in found)
        records = [key_of(now, about, created, *(us or None for us in times)) for about, created, *times in rows]
        return sorted(records, key=lambda record: (record.created_at, record.key.id))

    async def audit(self, limit: int, before: int | None, action: str | None, by: str | None) -> list[AuditRecord]:
        found: list[AuditRecord] = []
        newest = "+" if before is None else f"({before}-0"
        key = f"{self._server.address.prefix}audit"
        while len(found) < limit:
            entries = await self._server.connection("read").ask("XREVRANGE", key, newest, "-", "COUNT", JOBS_PER_LOOK)
            records = (_audited(entry) for entry in entries)
            chosen = (record for record in records if action in (None, record.action))
            found += (record for record in chosen if by in (None, record.by) or record.by.startswith(f"{by}:"))
            if len(entries) < JOBS_PER_LOOK:
                break
            newest = f"({entries[-1][0].decode()}"
        return found[:limit]

    async def lanes(self) -> list[LaneDepth]:
        now, *rows = await self._server.look("lanes")
        lanes = []
        for name, waiting, oldest in rows:
            queue, task, priority = name.decode().split("|")
            age = max(0.0, (int(now) - int(oldest)) / 1_000_000)
            lanes.append(LaneDepth(queue=queue, task=task, priority=int(priority), waiting=int(waiting), oldest_age_s=age))
        return sorted(lanes, key=lambda lane: (lane.queue, lane.task, lane.priority))

    async def measure(self, measured: Sequence[Measured]) -> None:
        words: list[Argument] = []
        for each in measured:
            words += [each.queue, each.task, event_of(each), each.count]
        if words:
            await self._server.run("measure", *words, connection="keep")

    async def rollups(self, minutes: int, queue: str | None, task: str | None) -> list[Rollup]:
        now, counted = await self._minutes(minutes)
        chosen = (each for each in counted if queue in (None, each.queue) and task in (None, each.task))
        return rolled(((each.minute, each.event, each.count) for each in chosen), now, minutes)

    async def times(self, minutes: int, queue: str | None) -> list[Measured]:
        _, counted = await self._minutes(minutes)
        return times_of((each.queue, each.task, each.event, each.count) for each in counted if queue in (None, each.queue))

    async def event_counts(self, minutes: int, events: Sequence[str], back: int) -> list[EventCount]:
        asked, (_, counted) = frozenset(events), await self._minutes(minutes, back)
        return [each for each in counted if each.event in asked]

    async def _minutes(self, minutes: int, back: int = 0) -> tuple[int, list[EventCount]]:
        now, *rows = await self._server.look("minutes", minutes, back)
        counts = []
        for minute, flat in rows:
            for name, count in _pairs(flat):
                queue, task, event = name.split("|", 2)
                counts.append(EventCount(int(minute), queue, task, event, int(count)))
        return int(now), counts


def _end(state: int, task: bytes, error: bytes, result: bytes) -> JobEnd | None:
    if state < 0:
        return GONE
    return end_of(task.decode(), STATES[state], error.decode() or None, result or None)


def _pairs(flat: Sequence[bytes]) -> Pairs:
    return ((name.decode(), value) for name, value in zip(flat[::2], flat[1::2], strict=True))


def _cursor(after: str) -> bytes:
    """The id to continue after. A cursor that is not an id sorts as text among the ids."""
    found = raw(after)
    return found if any(found) else b"\0"


def _filter(filter: Filter) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "state": None if filter.state is None else STATES.index(filter.state),
        "waiting": filter.waiting,
        "queue": filter.queue,
        "task": filter.task,
        "key": filter.key,
        "tag": filter.tag,
        "parent": filter.parent_id,
        "schedule": filter.schedule,
        "member": filter.group_name,
        "argument": filter.argument,
        "batch": filter.batch,
        "since": None if filter.since is None else from_datetime(filter.since),
        "until": None if filter.until is None else from_datetime(filter.until),
    }
    if filter.group is not None:
        other = filter.task not in (None, filter.group.task)
        wanted |= {"task": filter.group.task, "fingerprint": "none" if other else filter.group.fingerprint}
    return {name: value for name, value in wanted.items() if value is not None}


def _letter(id: bytes, lane: bytes, record: bytes, reason: bytes, finished: bytes) -> DeadLetter:
    queue, task, _ = lane.decode().split("|")
    error = (record_of(record)[6] if record else None) or reason.decode() or None
    told = None if error is None else error.lstrip(BLANK)[:ERROR_TOLD]
    return letter_of(text(id), task, queue, told, int(finished))


def _group(name: tuple[str, str], rows: Sequence[Any]) -> DeadGroup:
    """One group, which may have jobs in several queues."""
    oldest, newest = min(rows, key=lambda row: row[4]), max(rows, key=lambda row: row[6])
    return DeadGroup(*name, sum(row[3] for row in rows), at(int(oldest[5])), _letter(*newest[6:]))


def _stats(rows: Sequence[Any], now: int, first: int | None) -> QueueStats:
    sums: defaultdict[str, int] = defaultdict(int)
    states: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        for state, count in _pairs(row[9]):
            states[state] += int(count)
        for event, count in _pairs(row[10]):
            sums[event] += int(count)
    fresh, timed, timed_due, retrying, retrying_due = (sum(row[n] for row in rows) for n in range(1, 6))
    oldest = min((int(row[6]) for row in rows if row[6]), default=now)
    return QueueStats(
        ready=fresh + timed_due,
        scheduled=timed - timed_due - states["held"],
        held=states["held"],
        retrying=retrying,
        due=fresh + timed_due + retrying_due,
        running=states["running"],
        done=states["done"],
        dead=states["dead"],
        cancelled=states["cancelled"],
        keys=sum(row[7] for row in rows),
        oldest_age_s=max(0.0, (now - oldest) / 1_000_000),
        attempts_p99=attempts_p99(sums),
        rates=rates(sums, now, first),
        paused=any(row[8] for row in rows),
    )


def _audited(entry: Any) -> AuditRecord:
    id, fields = entry
    when, by, action, target, count, reason, about = unpack(fields[1])
    joined = fields[3]
    ids = tuple(text(joined[n : n + 16]) for n in range(0, len(joined), 16))
    if target == "job":
        target, ids = ids[0], ()
    record = audit_of(int(id.partition(b"-")[0]), when, by, action, target, count, reason or None, about or None)
    return msgspec.structs.replace(record, ids=ids) if ids else record


def _use(now: int, kind: bytes, name: bytes, declared: bytes, chosen: bytes, since: bytes, by: bytes, *use: Any) -> LimitUse:
    """A limit as `limits` tells it."""
    running, slot, counts, kept_back = use
    kept = KeptLimit(_limit(declared), _limit(chosen), int(since) if since else None, by.decode())
    target = Target(cast("Literal['queue', 'task']", kind.decode()), name.decode())
    window = Window(int(slot), tuple(counts)) if counts else Window()
    return kept.use(target, running, window, now, min(GROUPS_COUNTED, kept_back))


def _limit(text: bytes) -> Limit | None:
    return msgspec.json.decode(text, type=Limit) if text else None
