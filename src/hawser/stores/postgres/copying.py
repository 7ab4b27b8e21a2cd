"""Very many new jobs of one call, by COPY."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import asyncpg

from hawser.errors import HawserError
from hawser.job import DEFAULT_ATTEMPTS, NewJob
from hawser.store import Enqueued
from hawser.stores.columns import GIVEN, values_of
from hawser.stores.order import Lane as Order
from hawser.stores.order import due_at, first_lane
from hawser.stores.postgres.arrivals import Arrivals
from hawser.stores.postgres.enqueue_arguments import DAY_MS, made_on
from hawser.stores.postgres.errors import lanes_forgotten
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, Kind
from hawser.stores.postgres.server import Server

DAY_US: Final = DAY_MS * 1_000
COPIED: Final = ("id", "lane", "run_at", "enqueued_at", "max_attempts", "kind", *(column.name for column in GIVEN))


class NotSoSimple(HawserError):
    """These jobs cannot just be copied; nothing was written."""


async def copied(
    server: Server, con: asyncpg.Connection, jobs: Sequence[NewJob], lanes: Sequence[int], wake: Sequence[str]
) -> list[Enqueued]:
    """All are new and no queue has a limit or a policy for attempts; otherwise nothing is written."""
    known = set(lanes)
    [(now, asked, there)] = await con.fetch(server.sql["before_copy"], server.given, list(known))
    if there < len(known):
        raise lanes_forgotten(server.address.where)
    if asked:
        raise NotSoSimple("a queue has a limit or a policy")
    counts: Counter[tuple[int, str]] = Counter()
    arrived = Arrivals()
    records = []
    for job, lane in zip(jobs, lanes, strict=True):
        run_at = due_at(job, now)
        kind = Kind.TIMED if first_lane(job, run_at, now) is Order.TIMED else Kind.FRESH if job.run_at is None else Kind.LATE
        counts[lane, f"@{kind.waiting.name.lower()}"] += 1
        counts[lane, "enqueued"] += 1
        number = kind if job.group is None else kind + GROUPED_KIND
        if job.group is not None:
            arrived.add(lane, job.group, run_at, waited=kind is not Kind.FRESH)
        records.append((job.id, lane, run_at, now, job.max_attempts or DEFAULT_ATTEMPTS, number, *values_of(job, now)))
    try:
        await con.copy_records_to_table("job", schema_name=server.address.schema, columns=COPIED, records=records)
    except asyncpg.UniqueViolationError:
        raise NotSoSimple("some are there already") from None
    if await con.fetch(server.sql["known"], [job.id for job in jobs], min(made_on(job.id for job in jobs), now // DAY_US) - 1):
        raise NotSoSimple("some have come to their end already")
    places = [(lane, name, n) for (lane, name), n in counts.items()]
    await con.execute(server.sql["count"], server.given, *(list(column) for column in zip(*places, strict=True)))
    if arrived:
        await con.execute(server.sql["arrive"], *arrived.columns())
    if wake:
        await con.execute(server.sql["wake"], list(wake))
    return [Enqueued(job.id, created=True) for job in jobs]
