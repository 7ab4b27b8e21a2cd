"""Steps: what runs have achieved is kept once, fenced, and there for every later run."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import Claimed, State
from hawser.outcome import Dead, Done, Failed, Failure, Outcome, Released, Snoozed
from hawser.store import Acted, NewStep, RecordedStep, Retention, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    cancelled,
    dead,
    done,
    failed,
    lose,
    now,
    running,
    said,
    seen,
    settle,
    take_one,
    write,
)
from hawser.value.ids import new_id


def a_step(run: Claimed, name: str = "charge", value: bytes = b'{"paid":1}', lasts: float | None = None) -> NewStep:
    kind = "step" if lasts is None else "sleep"
    return NewStep(id=run.id, lease=run.lease, name=name, value=value, kind=kind, lasts=lasts)


async def kept(store: Store, *steps: NewStep) -> list[RecordedStep]:
    """What is kept under the names of steps that are all recorded."""
    answers = await store.record_steps(steps)
    assert None not in answers
    return [answer for answer in answers if answer is not None]


async def names(store: Store, id: str) -> list[str]:
    return [step.name for step in await store.steps(id)]


async def test_a_step_is_kept_with_its_value(store: Store, clock: ManualClock) -> None:
    """
    Keep what runs have achieved, each fenced by its lease number, each once under its name; the answers have what is kept under
    these names now.
    The steps of a job in the order in which they were recorded.
    """
    run = await running(store)
    clock.advance(2)
    [one] = await kept(store, a_step(run, "z", b'{"text":"\xc3\xa9"}'))
    assert (one.name, one.kind, one.value, one.at, one.lease) == ("z", "step", {"text": "é"}, now(clock), run.lease)
    [two, three] = await kept(store, a_step(run, "a", b"null"), a_step(run, "m"))
    assert await store.steps(run.id) == [one, two, three]
    assert await store.steps(new_id()) == await store.steps("none") == []
    assert await store.record_steps([]) == []


async def test_the_first_record_under_a_name_stays(store: Store, clock: ManualClock) -> None:
    """The first record under a name stays; another one changes nothing."""
    run = await running(store)
    [first] = await kept(store, a_step(run, value=b"1"))
    clock.advance(1)
    assert await kept(store, a_step(run, value=b"2")) == [first]
    assert await kept(store, a_step(run, "other", b"3"), a_step(run, "other", b"4")) == [(await store.steps(run.id))[1]] * 2
    assert [step.value for step in await store.steps(run.id)] == [1, 3]


async def test_many_who_record_the_same_step_at_once_get_one_value(store: Store, second: Opener) -> None:
    """The first record under a name stays; another one changes nothing."""
    run = await running(store)
    handles = [store, await second(), await second()]
    answers = await asyncio.gather(
        *(handles[n % 3].record_steps([a_step(run, value=b"%d" % n), a_step(run, f"own {n}")]) for n in range(12))
    )
    values = {answer[0].value for answer in answers if answer[0] is not None}
    assert len(values) == 1
    assert all(None not in answer for answer in answers)
    assert len(await store.steps(run.id)) == 13


async def test_a_stale_run_records_nothing(store: Store, clock: ManualClock) -> None:
    """A step whose lease is not the current one is not kept, and its answer is None."""
    old = await running(store)
    await lose(store, clock)
    assert await store.record_steps([a_step(old)]) == [None]
    new = await take_one(store)
    of_both = await store.record_steps([a_step(old, value=b"1"), a_step(new, value=b"2"), a_step(old, "other")])
    assert [step and step.value for step in of_both] == [None, 2, None]
    await write(store, done(new))
    assert await store.record_steps([a_step(new, "late")]) == [None]
    assert await store.record_steps([NewStep(id="none", lease=1, name="x", value=b"1")]) == [None]
    assert await names(store, new.id) == ["charge"]


async def test_a_run_that_is_late_but_not_reclaimed_records(store: Store, clock: ManualClock) -> None:
    """One whose lease has run out is kept all the same, unless the run was reclaimed."""
    run = await running(store, lease_for=10)
    clock.advance(11)
    await kept(store, a_step(run))
    assert await names(store, run.id) == ["charge"]


async def test_steps_are_there_for_the_next_run(store: Store, reopen: Opener) -> None:
    """They are kept as long as the job is, however it ended, and are there again when it was requeued."""
    run = await running(store, max_attempts=1)
    await kept(store, a_step(run, "one"), a_step(run, "two"))
    await write(store, settle(run, Dead(Failure("Drop: gone"))))
    assert await names(store, run.id) == ["one", "two"]
    await store.requeue([run.id], SIGN)
    again = await take_one(store)
    assert await names(store, again.id) == ["one", "two"]
    store = await reopen()
    assert await names(store, again.id) == ["one", "two"]
    await kept(store, a_step(again, "three"))
    await write(store, done(again))
    assert await names(store, again.id) == ["one", "two", "three"]


@pytest.mark.parametrize("outcome", [Failed(Failure("no")), Snoozed(0.0), Released()])
async def test_attempts_are_counted_from_the_last_step_on(store: Store, outcome: Outcome) -> None:
    """
    Attempts are counted from the last new record on: the run that made it is the first attempt again.
    """
    run = await running(store, max_attempts=2)
    await write(store, failed(run))
    second_run = await take_one(store)
    assert second_run.attempt == 2
    await kept(store, a_step(second_run))
    assert (await seen(store, run.id)).attempt == 1
    await write(store, settle(second_run, outcome))
    found = await seen(store, run.id)
    assert (found.state, found.attempt) == (State.READY, 1 if isinstance(outcome, Failed) else 0)


async def test_a_record_that_was_there_restarts_no_attempts(store: Store) -> None:
    """
    Attempts are counted from the last new record on: the run that made it is the first attempt again.
    """
    run = await running(store, max_attempts=2)
    await kept(store, a_step(run))
    await write(store, failed(run))
    second_run = await take_one(store)
    await kept(store, a_step(second_run))
    await write(store, failed(second_run))
    assert (await seen(store, run.id)).state is State.DEAD


async def test_a_lost_run_that_made_a_step_is_the_first_attempt(store: Store, clock: ManualClock) -> None:
    """
    Attempts are counted from the last new record on: the run that made it is the first attempt again.
    """
    run = await running(store, max_attempts=2)
    await write(store, failed(run))
    await kept(store, a_step(await take_one(store)))
    await lose(store, clock)
    found = await seen(store, run.id)
    assert (found.state, found.attempt) == (State.READY, 1)


async def test_a_sleep_ends_by_the_clock_of_the_store(store: Store, clock: ManualClock) -> None:
    """The end of a sleep is a time of the store's clock, which the first record sets."""
    run = await running(store)
    [sleep] = await kept(store, a_step(run, "cool-off", b"null", lasts=60))
    assert (sleep.kind, sleep.until, sleep.left) == ("sleep", now(clock, 60), 60)
    clock.advance(45)
    [again] = await kept(store, a_step(run, "cool-off", b"null", lasts=60))
    assert (again.until, again.left) == (sleep.until, 15)
    clock.advance(100)
    assert [step.left for step in await store.steps(run.id)] == [0]


async def test_steps_go_with_their_job(store: Store, clock: ManualClock) -> None:
    """They go when it is removed: a new job with the same id has none."""
    gone = []
    for outcome in (Done(), Dead(Failure("no"))):
        run = await running(store)
        await kept(store, a_step(run))
        await write(store, settle(run, outcome))
        gone.append(run.id)
    at_once = await running(store)
    await kept(store, a_step(at_once))
    await write(store, done(at_once, keep=False))
    clock.advance(10)
    nothing = Retention(done=0, dead=0, cancelled=0)
    assert await store.prune(nothing, {}, 100) == 2
    for id in (*gone, at_once.id):
        assert await store.get(id) is None
        assert await store.steps(id) == []
    for id in (*gone, at_once.id):
        await store.enqueue([a_job(id=id)])
        assert await store.steps(id) == []
        new = await take_one(store)
        [step] = await kept(store, a_step(new, value=b'"new"'))
        assert step.value == "new"
        assert said(await store.settle([done(new)])) == [Settled.SETTLED]


async def test_a_job_without_steps_has_none_beside_one_that_has(store: Store) -> None:
    """The steps of a job in the order in which they were recorded."""
    run = await running(store)
    await kept(store, a_step(run))
    other = await add(store)
    assert await store.steps(other) == []


@pytest.mark.parametrize("end", [dead, cancelled])
async def test_a_rewound_job_has_the_steps_up_to_one(store: Store, end: Ending) -> None:
    """
    Run a dead or cancelled job again, as requeue does, and forget what was recorded after one of its steps, in one write with its
    audit record.
    """
    run = await running(store, max_attempts=1)
    await kept(store, a_step(run, "z"), a_step(run, "b"), a_step(run, "a", lasts=5.0))
    await write(store, end(run))
    assert await store.rewind(run.id, "z", SIGN) is Acted.DONE
    job = await seen(store, run.id)
    assert (job.state, job.attempt) == (State.READY, 0)
    assert await names(store, run.id) == ["z"]
    [record] = await store.audit(1)
    assert (record.action, record.target, record.count, record.by) == ("rewind", run.id, 1, SIGN.by)
    again = await take_one(store)
    [later] = await kept(store, a_step(again, "a", b"2"))
    assert (later.value, later.lease) == (2, again.lease)
    assert await names(store, run.id) == ["z", "a"]


async def test_a_job_may_begin_anew(store: Store) -> None:
    """Without a name all its steps are forgotten."""
    run = await running(store)
    await kept(store, a_step(run, "one"), a_step(run, "two"))
    await write(store, dead(run))
    assert await store.rewind(run.id, None, SIGN) is Acted.DONE
    assert await names(store, run.id) == []
    other = await running(store, queue="other")
    await write(store, dead(other))
    assert await store.rewind(other.id, None, SIGN) is Acted.DONE


async def test_a_step_that_is_not_there_rewinds_nothing(store: Store) -> None:
    """When it does not have that step nothing changes, and the answer is `NOT_FOUND`."""
    run = await running(store)
    await kept(store, a_step(run, "one"))
    await write(store, dead(run))
    assert await store.rewind(run.id, "two", SIGN) is Acted.NOT_FOUND
    assert await store.rewind(new_id(), None, SIGN) is Acted.NOT_FOUND
    assert await store.rewind("none", "one", SIGN) is Acted.NOT_FOUND
    assert (await seen(store, run.id)).state is State.DEAD
    assert await names(store, run.id) == ["one"]
    assert await store.audit(10) == []


async def test_only_a_dead_or_cancelled_job_is_rewound(store: Store) -> None:
    """
    Run a dead or cancelled job again, as requeue does, and forget what was recorded after one of its steps, in one write with its
    audit record.
    """
    run = await running(store)
    await kept(store, a_step(run, "one"), a_step(run, "two"))
    assert await store.rewind(run.id, "one", SIGN) is Acted.WRONG_STATE
    await write(store, done(run))
    assert await store.rewind(run.id, "one", SIGN) is Acted.WRONG_STATE
    assert await names(store, run.id) == ["one", "two"]
