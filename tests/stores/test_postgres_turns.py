"""Turns of groups on PostgreSQL: what one process draws is not behind what another remembers."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from hawser.job import NewJob
from hawser.store import Share
from hawser.testing.clock import ManualClock
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema

CLAIMED_WITHIN = 5.0
"""Seconds that a claim has to be through, or to be seen to wait."""


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    return url


def job(group: str, delay: float = 0) -> NewJob:
    return NewJob(task="t", body=b"{}", group=group, delay=delay)


async def test_a_group_is_served_whose_turn_was_drawn_by_a_process_that_starts_while_another_claims(url):
    """A process that starts looks at all groups: it gives those a turn that wait for their time. It is slow to commit that, and
    the one that claims meanwhile goes on for long without a second claimer."""
    clock = ManualClock()
    claimer = postgres(url, clock=clock)
    await claimer.open()
    starting = await asyncpg.connect(claimer.address.dsn)
    try:
        await claimer.enqueue([job("late", delay=60)])
        assert await claimer.claim([Share("default")], 1, "w", 600) == []
        transaction = starting.transaction()
        await transaction.start()
        await starting.execute(claimer.server.sql["look_at_all_groups"])
        await claimer.enqueue([job("busy") for _ in range(3)])
        claiming = asyncio.create_task(claimer.claim([Share("default")], 1, "w", 600))
        async with asyncio.timeout(CLAIMED_WITHIN):
            while not claiming.done() and not await waits_for_a_lock(claimer.address.dsn):
                await asyncio.sleep(0.01)
        await transaction.commit()
        assert [run.group for run in await claiming] == ["busy"]
        clock.advance(61)
        assert {run.group for run in await claimer.claim([Share("default")], 2, "w", 600)} == {"busy", "late"}
    finally:
        await starting.close()
        await claimer.close()


async def waits_for_a_lock(dsn: str) -> bool:
    con = await asyncpg.connect(dsn)
    try:
        return bool(await con.fetchval("select exists (select from pg_locks where locktype = 'advisory' and not granted)"))
    finally:
        await con.close()
