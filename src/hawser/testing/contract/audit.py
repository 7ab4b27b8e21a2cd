"""Audit: who did what, to what, to how many, and why."""

from __future__ import annotations

from hawser.job import State
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import AUDIT_IDS, Actor, AuditRecord, Filter, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, a_job, add, add_many, done, in_state, now, running, write
from hawser.value.ids import new_id

MAIL_QUEUE = Target("queue", "mail")


async def latest(store: Store) -> tuple[str, str, int]:
    [record] = await store.audit(1)
    return record.action, record.target, record.count


async def test_actions_on_jobs_are_recorded(store: Store) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    one, two, three = await add_many(store, 3, delay=60)
    await store.cancel([one], SIGN)
    assert await latest(store) == ("cancel", one, 1)
    await store.cancel([two, three, new_id()], SIGN)
    assert await latest(store) == ("cancel", "jobs", 2)
    await store.requeue([one], SIGN)
    assert await latest(store) == ("requeue", one, 1)
    await store.requeue([two, three], SIGN)
    assert await latest(store) == ("requeue", "jobs", 2)
    claimed = await running(store, queue="other")
    await store.cancel([claimed.id], SIGN)
    assert await latest(store) == ("cancel", claimed.id, 1)


async def test_actions_on_dead_jobs_are_recorded(store: Store) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    one, two, three, four = [await in_state(store, State.DEAD) for _ in range(4)]
    await store.discard([one], SIGN)
    assert await latest(store) == ("discard", one, 1)
    await store.discard([two, three], SIGN)
    assert await latest(store) == ("discard", "jobs", 2)
    before = len(await store.audit())
    await store.replace(four, a_job(), SIGN)
    assert await latest(store) == ("replace", four, 1)
    assert len(await store.audit()) == before + 1


async def test_actions_on_queues_and_tasks_are_recorded(store: Store) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    await store.pause(MAIL_QUEUE, SIGN)
    await store.pause(Target("task", "send"), SIGN)
    await store.resume(MAIL_QUEUE, SIGN)
    await store.resume(Target("task", "send"), SIGN)
    await store.set_limit(Target("queue", "mail"), Limit(max_depth=5), SIGN)
    await store.set_policy("mail", QueuePolicy(max_attempts=5), SIGN)
    assert [(record.action, record.target) for record in await store.audit()] == [
        ("set_policy", "queue:mail"),
        ("set_limit", "queue:mail"),
        ("resume", "task:send"),
        ("resume", "queue:mail"),
        ("pause", "task:send"),
        ("pause", "queue:mail"),
    ]


async def test_a_record_says_who_when_and_why(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    id = await add(store, delay=60)
    clock.advance(5)
    await store.cancel([id], Actor("bob \u00e9", "it's over"))
    clock.advance(5)
    await store.requeue([id], Actor())
    store = await reopen()
    assert await store.audit() == [
        AuditRecord(number=2, at=now(clock), by="app", action="requeue", target=id, count=1, reason=None),
        AuditRecord(number=1, at=now(clock, -5), by="bob \u00e9", action="cancel", target=id, count=1, reason="it's over"),
    ]


async def test_the_newest_records_come_first_and_no_more_than_asked(store: Store, clock: ManualClock) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    for number in range(7):
        await store.set_limit(Target("queue", "mail"), Limit(max_depth=number), Actor(f"p{number}"))
    assert [record.by for record in await store.audit(3)] == ["p6", "p5", "p4"]
    assert len(await store.audit()) == 7
    clock.advance(1)
    await store.pause(MAIL_QUEUE, Actor("last"))
    assert [record.by for record in await store.audit(1)] == ["last"]


async def test_older_records_are_found_behind_the_number_of_a_newer(store: Store) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    for number in range(7):
        await store.set_limit(Target("queue", "mail"), Limit(max_depth=number), Actor(f"p{number}"))
    pages, before = [], None
    while page := await store.audit(3, before):
        pages.append([record.by for record in page])
        before = page[-1].number
        await store.pause(MAIL_QUEUE, Actor("meanwhile"))
    assert pages == [["p6", "p5", "p4"], ["p3", "p2", "p1"], ["p0"]]


async def test_an_action_that_changed_nothing_leaves_no_record(store: Store) -> None:
    """An action that changed nothing leaves none."""
    over = await in_state(store, State.DONE)
    taken = await in_state(store, State.DEAD, key="k")
    other = await in_state(store, State.DEAD)
    await add(store, key="k", delay=60)
    unknown = new_id()
    await store.cancel([over, unknown], SIGN)
    await store.requeue([over, taken, unknown], SIGN)
    await store.discard([over, unknown], SIGN)
    await store.replace(over, a_job(), SIGN)
    await store.replace(unknown, a_job(), SIGN)
    await store.replace(other, a_job(key="k"), SIGN)
    await store.resume(MAIL_QUEUE, SIGN)
    for nothing in (store.cancel, store.requeue, store.discard):
        await nothing([], SIGN)
    assert await store.audit() == []


async def test_only_what_changed_is_counted(store: Store) -> None:
    """An action that changed nothing leaves none."""
    one, over, two = await add(store, delay=60), await in_state(store, State.DONE), await add(store, delay=60)
    await store.cancel([one, over, new_id(), two], SIGN)
    assert [(record.action, record.count) for record in await store.audit()] == [("cancel", 2)]


async def test_workers_and_producers_leave_no_records(store: Store) -> None:
    """The latest audit records, or the latest before that number, newest first."""
    await write(store, done(await running(store)))
    assert await store.audit() == []


async def test_a_record_of_several_names_those_that_were_changed(store: Store) -> None:
    """A record of several jobs names those that were changed, the first `AUDIT_IDS` of them. It has the filter and the
    operation of the signature."""
    one, over, two = await add(store, delay=60), await in_state(store, State.DONE), await add(store, delay=60)
    filter = Filter(state=State.READY, queue="default").told()
    await store.cancel([one, over, new_id(), two], Actor("ann", "late", filter, "op"))
    [record] = await store.audit()
    assert (record.target, record.count, record.ids) == ("jobs", 2, (one, two))
    assert (record.filter, record.operation) == ({"state": "ready", "queue": "default"}, "op")
    await store.requeue([one, two], SIGN)
    [record] = await store.audit(1)
    assert (record.ids, record.filter, record.operation) == ((one, two), None, None)
    await store.cancel([one], Actor("ann", None, filter, "op"))
    [record] = await store.audit(1)
    assert (record.target, record.ids, record.filter, record.operation) == (one, (), filter, "op")


async def test_a_record_names_no_more_than_so_many(store: Store) -> None:
    """A record of several jobs names those that were changed, the first `AUDIT_IDS` of them."""
    ids = await add_many(store, AUDIT_IDS + 1, delay=60)
    await store.cancel(ids, SIGN)
    [record] = await store.audit()
    assert (record.count, record.ids) == (AUDIT_IDS + 1, tuple(ids[:AUDIT_IDS]))


async def test_records_are_chosen_by_action_and_by_who(store: Store) -> None:
    """`action` and `by` choose records; `by` is a whole name, or what stands before a colon in it."""
    for by in ("ops:1", "ops:2", "opsx:1", "cli", "o%"):
        await store.pause(MAIL_QUEUE, Actor(by))
        await store.resume(MAIL_QUEUE, Actor(by))
    assert {record.action for record in await store.audit(action="pause")} == {"pause"}
    assert [record.by for record in await store.audit(action="resume", by="ops")] == ["ops:2", "ops:1"]
    assert [record.by for record in await store.audit(action="resume", by="ops:1")] == ["ops:1"]
    assert [record.by for record in await store.audit(by="o%")] == ["o%", "o%"]
    assert await store.audit(by="op") == []
    assert await store.audit(action="paus") == []
    [latest] = await store.audit(1, action="pause", by="ops")
    [older] = await store.audit(1, latest.number, action="pause", by="ops")
    assert (latest.by, older.by) == ("ops:2", "ops:1")


async def test_an_action_on_something_else_can_be_noted(store: Store, clock: ManualClock) -> None:
    """Leave an audit record of an action on something that the store does not keep."""
    await store.note("stop_operation", "operation:1", Actor("ann", "too many"))
    assert await store.audit() == [
        AuditRecord(number=1, at=now(clock), by="ann", action="stop_operation", target="operation:1", count=0, reason="too many")
    ]
