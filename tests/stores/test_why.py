"""What keeps a job back is said in the same words on every store, over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hawser import Context, Hawser
from hawser.breaker import Breaker
from hawser.cli.program import hawser
from hawser.job import new_job
from hawser.limit import Limit
from hawser.store import Actor, Beat, Share, Store, Target
from hawser.store.breakers import BreakerVerdict
from tests.api.conftest import client_of
from tests.worker.conftest import until, working
from tests.worker.test_breaker import url_of

ANN = Actor("ann")
INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")

WHY = {
    "capped": "task capped runs 1 of 1 at once (limit of task capped); 7 other jobs of queue default are due",
    "rated": "task rated has started 1 in the last hour; the next may at TIME; 7 other jobs of queue default are due",
    "broken": "the breaker of task broken is open since TIME, by ann, until a person closes it",
    "failing": "the breaker of task failing is open since TIME (83 % of 240 attempts failed); next probe at TIME",
    "each": "group acme runs 1 of 1 (limit per group of task each)",
    "ordered": "group acme keeps its order: job FIRST goes first, running (limit per group of task ordered)",
    "turns": "waits for its turn: 1 group is before blue, 2 jobs of blue before it",
}
"""Of each task the last job, and why it waits."""

WHY_HELD = {
    "sleeps": "not due before TIME, put aside: sleeps: cool off, since TIME",
    "hopes": "its handler waits for the event 'packed', since TIME, until TIME",
    "waits": "its handler waits for the event 'paid', since TIME, without an end",
    "gathers": "its handler waits for jobs of its own at step 'labels', since TIME; waits for 1 of 1 jobs: CHILD (ready)",
}
"""Of each task what its handler waits for."""


async def add(store: Store, task: str, *groups: str | None, queue: str = "default") -> list[str]:
    jobs = [new_job(task=task, queue=queue, body=b"{}", group=group) for group in groups]
    for job in jobs:
        await store.enqueue([job])
    return [job.id for job in jobs]


async def kept_back(store: Store) -> dict[str, str]:
    """A job of each task that is kept back, by task; and the job that goes before the ordered one."""
    await store.beat(
        [Beat(worker="w1", host="h", pid=1, version="1", queues=("default", "other"), slots=50, running=0)],
    )
    limits = {
        "capped": Limit(running=1),
        "rated": Limit(rate="1/h"),
        "each": Limit(running=1, per_group=True),
        "ordered": Limit(running=1, per_group=True, ordered=True),
    }
    for task, limit in limits.items():
        await store.set_limit(Target("task", task), limit, ANN)
    await store.declare_breakers({"failing": Breaker(share=0.8, window=300, least=20, probe_every=600)})
    [status] = await store.breakers()
    assert await store.judge([BreakerVerdict(task="failing", revision=status.revision, open=True, failed=199, attempts=240)])
    await store.open_breaker("broken", ANN)
    found = {}
    for task in ("capped", "rated", "broken", "failing"):
        *_, found[task] = await add(store, task, None, None)
    for task in ("each", "ordered"):
        found["FIRST"], found[task] = await add(store, task, "acme", "acme")
    *_, found["turns"] = await add(store, "turns", "red", "red", "green", "blue", "blue", "blue", queue="other")
    assert len(await store.claim([Share("default")], 50, "w1", 600)) == 4
    assert [run.group for run in await store.claim([Share("other")], 1, "w1", 600)] == ["red"]
    return found


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hawser]:
    app = Hawser(await url_of(request.param, tmp_path))
    yield app
    await app.aclose()


async def said_everywhere(app: Hawser, found: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Why these jobs wait, as the API says it and the command line."""
    said = {}
    api = app.asgi(upkeep=False, open=True)
    async with client_of(api) as client:
        for task, id in found.items():
            said[task] = (await client.get(f"/jobs/{id}")).json()["why"]
            if not app.config.store.startswith("memory"):
                monkeypatch.setenv("HAWSER_STORE", app.config.store)
                ran = await asyncio.to_thread(CliRunner().invoke, hawser, ["jobs", "why", id, "--json"])
                assert "; ".join(json.loads(ran.stdout)["why"]) == said[task]
    await api.stop()
    return {task: INSTANT.sub("TIME", each) for task, each in said.items()}


async def test_why_is_said_in_the_same_words(app: Hawser, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await kept_back(await app.store())
    first = found.pop("FIRST")
    said = await said_everywhere(app, found, monkeypatch)
    assert {task: each.replace(first, "FIRST") for task, each in said.items()} == WHY


async def test_why_says_what_a_handler_waits_for(app: Hawser, monkeypatch: pytest.MonkeyPatch) -> None:
    label = app.task(name="label", queue="parts")(lambda: None)  # no worker takes it

    @app.task
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep("cool off", days=2)

    @app.task
    async def hopes(ctx: Context) -> None:
        await ctx.wait_for("packed", timeout=60)

    @app.task
    async def waits(ctx: Context) -> None:
        await ctx.wait_for("paid", timeout=None)

    @app.task
    async def gathers(ctx: Context) -> None:
        await ctx.gather(label.job(), name="labels")

    found = {task.name: (await task.aenqueue()).id for task in (sleeps, hopes, waits, gathers)}
    async with working(app, queues=["default"]):
        for id in found.values():
            await until(lambda job: job.held or job.reason is not None, app, id)
    [child] = (await app.afind(task="label")).jobs
    said = await said_everywhere(app, found, monkeypatch)
    assert {task: each.replace(child.id, "CHILD") for task, each in said.items()} == WHY_HELD
