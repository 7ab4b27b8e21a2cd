"""Marks in the charts: deploys that outlast their workers, pauses among many cancels, one mark for a bulk operation."""

from __future__ import annotations

import httpx
from msgspec.structs import replace

from hawser import Hawser, State
from hawser.api import marks as marks_module
from hawser.api.marks import Marks
from hawser.clock import at
from hawser.store import Actor, Beat, Store, Target
from hawser.testing.clock import ManualClock
from hawser.upkeep.deploy import DeployNoter
from tests.api.conftest import in_state

BEAT = Beat(worker="w1", host="h", pid=1, version="9", app_version="1.0", queues=("mail",), slots=1, running=0)


async def deploys(store: Store, version: str | None, *own: str) -> list[str]:
    await DeployNoter(store, version, own, "vm:1").turn()
    return [record.target for record in reversed(await store.audit(100, None, "deploy"))]


async def test_a_version_is_noted_once_and_again_when_it_comes_back(store: Store):
    assert await deploys(store, None) == []
    assert await deploys(store, "1.0", "w1") == ["version:1.0"]
    await store.beat([BEAT])
    assert await deploys(store, "1.0", "w2") == ["version:1.0"]
    assert await deploys(store, "1.1", "w3") == ["version:1.0", "version:1.1"]
    """Old and new ones run side by side: another old one is no deploy."""
    assert await deploys(store, "1.0", "w4") == ["version:1.0", "version:1.1"]
    await store.beat([], ["w1"])
    assert await deploys(store, "1.0", "w5") == ["version:1.0", "version:1.1", "version:1.0"]


async def test_a_deploy_is_a_mark_for_a_day_after_its_workers_are_forgotten(
    store: Store, client: httpx.AsyncClient, clock: ManualClock
):
    await deploys(store, "1.4", "w1")
    await store.beat([replace(BEAT, app_version="1.4")])
    clock.advance(5 * 3600)
    assert await store.workers() == []
    marks = (await client.get("/overview?minutes=360")).json()["marks"]
    assert [(mark["action"], mark["target"]) for mark in marks] == [("deploy", "version:1.4")]


async def test_processes_that_note_the_same_version_make_one_mark(store: Store, clock: ManualClock):
    for target in ("version:1", "version:2", "version:2", "version:1"):
        await store.note("deploy", target, Actor("vm:1"))
    found = await Marks(clock).since(store, at(0))
    assert [mark.target for mark in found] == ["version:1", "version:2", "version:1"]


async def test_many_actions_on_single_jobs_do_not_hide_a_pause(app: Hawser, store: Store, clock: ManualClock):
    marks = Marks(clock)
    await store.pause(Target("queue", "mail"), Actor("ann"))
    for _ in range(110):
        await store.cancel([await in_state(app, State.READY, "anything")], Actor("ann"))
    assert [(mark.action, mark.target) for mark in await marks.since(store, at(0))] == [("pause", "queue:mail")]
    for _ in range(110):
        await store.cancel([await in_state(app, State.READY, "anything")], Actor("ann"))
    await store.resume(Target("queue", "mail"), Actor("ann"))
    for _ in range(10):
        await store.cancel([await in_state(app, State.READY, "anything")], Actor("ann"))
    assert [mark.action for mark in await marks.since(store, at(0))] == ["pause", "resume"]


async def test_a_day_with_more_records_than_are_read_still_shows_its_pauses(store: Store, clock: ManualClock, monkeypatch):
    monkeypatch.setattr(marks_module, "MOST_PAGES", 1)
    monkeypatch.setattr(marks_module, "MAX_PAGE", 5)
    await store.pause(Target("queue", "mail"), Actor("ann"))
    for number in range(9):
        await store.note("emit", f"event:{number}", Actor("ann"))
    assert [mark.action for mark in await Marks(clock).since(store, at(0))] == ["pause"]


async def test_an_operation_on_many_jobs_is_one_mark(app: Hawser, store: Store, clock: ManualClock):
    marks = Marks(clock)
    for operation in ("o1", "o1", "o2"):
        ids = [await in_state(app, State.READY, "anything") for _ in range(2)]
        await store.cancel(ids, Actor("ann", operation=operation))
    await store.cancel([await in_state(app, State.READY, "anything")], Actor("ann", operation="o2"))
    ids = [await in_state(app, State.READY, "anything") for _ in range(2)]
    await store.cancel(ids, Actor("ann"))
    assert [(mark.action, mark.target) for mark in await marks.since(store, at(0))] == [("cancel", "jobs")] * 3


async def test_what_is_older_than_a_day_is_forgotten(store: Store, clock: ManualClock):
    marks = Marks(clock)
    await store.pause(Target("queue", "mail"), Actor("ann"))
    assert len(await marks.since(store, at(0))) == 1
    clock.advance(86_400 + 61)
    assert await marks.since(store, at(0)) == []


async def test_a_group_says_since_which_version_its_jobs_die(
    app: Hawser, store: Store, client: httpx.AsyncClient, clock: ManualClock
):
    await in_state(app, State.DEAD, error="ValueError: old")
    clock.advance(10)
    await store.note("deploy", "version:1.5", Actor("vm:1"))
    clock.advance(10)
    await in_state(app, State.DEAD, error="ValueError: old")
    await in_state(app, State.DEAD, error="KeyError: new")
    groups = (await client.get("/dlq/groups")).json()["groups"]
    assert {group["sample_error"]: group["new_since"] for group in groups} == {"ValueError: old": None, "KeyError: new": "1.5"}
