"""What becomes of a schedule: decided in pure code, with the time as a parameter."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hawser import Cron, Every
from hawser.clock import at, from_datetime, to_us
from hawser.job import NewJob
from hawser.schedule.change import pause, postpone, redefine, resume, retire, revive, run_now, skip_next
from hawser.schedule.rule import AnyRule, text_of
from hawser.schedule.schedule import (
    COUNTED,
    LEFT_OUT_KEPT,
    MISSED_AFTER_S,
    Advance,
    Definition,
    LeftOut,
    Schedule,
    create,
    past,
    plan,
    preview,
)

NOON = from_datetime(datetime(2026, 1, 1, 12, tzinfo=UTC))
MINUTE = to_us(60)


def a_schedule(rule: AnyRule | None = None, **state: Any) -> Schedule:
    definition = Definition(name="s", rule_text=text_of(rule or Every(minutes=1)), task="work")
    return msgspec.structs.replace(create(definition, NOON).schedule, **state)


def ticks(advance: Advance) -> list[float]:
    return [(from_datetime(job.tick) - NOON) / MINUTE for job in advance.jobs if job.tick is not None]


def lateness(job: NewJob) -> float:
    assert job.run_at is not None
    assert job.tick is not None
    return (job.run_at - job.tick).total_seconds()


def test_a_new_schedule_begins_with_the_next_tick():
    schedule = a_schedule()
    assert schedule.next_us == NOON + MINUTE
    assert plan(schedule, NOON).jobs == ()


def test_a_tick_is_fired_when_it_is_due_and_the_next_one_is_set():
    done = plan(a_schedule(), NOON + MINUTE)
    assert ticks(done) == [1]
    assert (done.schedule.handled_us, done.schedule.next_us) == (NOON + MINUTE, NOON + 2 * MINUTE)
    assert (done.schedule.fired, done.schedule.missed, done.schedule.last_job_id) == (1, 0, done.jobs[0].id)
    assert done.expect != done.schedule.revision


@pytest.mark.parametrize(
    ("rule", "wanted", "missed"),
    [
        (Every(minutes=1), [10], 9),
        (Every(minutes=1, missed="skip"), [10], 9),
        (Every(minutes=1, missed="all"), list(range(1, 11)), 0),
        (Every(minutes=1, missed="all", most_missed=3), [8, 9, 10], 7),
        (Every(minutes=1, missed="all", overlap="skip"), [10], 9),
    ],
)
def test_missed_ticks_are_made_up_for_as_the_rule_says(rule, wanted, missed):
    done = plan(a_schedule(rule), NOON + 10 * MINUTE + to_us(5))
    assert ticks(done) == wanted
    assert (done.schedule.fired, done.schedule.missed) == (len(wanted), missed)
    assert done.schedule.next_us == NOON + 11 * MINUTE
    assert plan(done.schedule, NOON + 10 * MINUTE + to_us(9)).jobs == ()


@pytest.mark.parametrize(("late", "fires"), [(MISSED_AFTER_S, True), (MISSED_AFTER_S + 1, False)])
def test_a_tick_that_is_late_is_skipped_when_the_rule_says_so(late, fires):
    done = plan(a_schedule(Every(minutes=10, missed="skip")), NOON + 10 * MINUTE + to_us(late))
    assert bool(done.jobs) is fires
    assert done.schedule.missed == (not fires)
    assert done.schedule.next_us == NOON + 20 * MINUTE


@pytest.mark.parametrize("rule", [Every(seconds=1), Cron("* * * * * *")])
@pytest.mark.parametrize("policy", ["once", "all"])
def test_a_long_outage_costs_no_walk_through_every_tick(rule, policy):
    rule = msgspec.structs.replace(rule, missed=policy, most_missed=100)
    done = plan(a_schedule(rule), NOON + to_us(30 * 86_400) + 7)
    assert done.schedule.last_us == NOON + to_us(30 * 86_400)
    assert len(done.jobs) == (1 if policy == "once" else 100)
    assert done.schedule.missed >= COUNTED - 100
    assert done.schedule.next_us == NOON + to_us(30 * 86_400 + 1)
    end = done.schedule.last_us - to_us(len(done.jobs) - 1)
    missed = [LeftOut(end - to_us(seconds), "missed") for seconds in range(LEFT_OUT_KEPT, 0, -1)]
    assert list(done.schedule.left_out) == missed, "the last ones before those that made jobs"


def test_a_clock_that_steps_forward_makes_no_storm_and_back_no_second_job():
    schedule = plan(a_schedule(Every(seconds=1)), NOON + to_us(1)).schedule
    forward = plan(schedule, NOON + to_us(3_600))
    assert len(forward.jobs) == 1
    assert forward.schedule.missed == 3_598
    back = plan(forward.schedule, NOON + to_us(2))
    assert back.jobs == ()
    assert (back.schedule.handled_us, back.schedule.next_us) == (NOON + to_us(3_600), NOON + to_us(3_601))


def test_ticks_never_go_back_whatever_is_changed_while_the_clock_is_behind():
    ahead = plan(a_schedule(), NOON + 60 * MINUTE).schedule
    other = msgspec.structs.replace(ahead.definition, rule_text=text_of(Every(minutes=2)))
    behind = NOON + 5 * MINUTE
    for change in (
        pause(ahead, behind, "ann", None),
        redefine(ahead, other, behind),
        skip_next(ahead, behind),
        run_now(ahead, behind),
        resume(pause(ahead, behind, "ann", None).schedule, behind),
        revive(retire(ahead).schedule),
    ):
        assert change.schedule.handled_us >= ahead.handled_us
        assert change.schedule.next_us is None or change.schedule.next_us > ahead.handled_us
        assert [job for job in change.jobs if job.tick is not None] == []


def test_what_is_due_is_fired_before_a_pause_or_an_edit_under_the_rule_that_stood():
    late = NOON + MINUTE + 9
    other = Definition(name="s", rule_text=text_of(Every(minutes=7)), task="other")
    for change in (pause(a_schedule(), late, "ann", "why"), redefine(a_schedule(), other, late), skip_next(a_schedule(), late)):
        assert ticks(change) == [1]
        assert change.jobs[0].task == "work"


def test_a_resumed_schedule_leaves_the_ticks_of_its_pause_alone():
    paused = pause(a_schedule(), NOON, "ann", "moving house").schedule
    assert (paused.due_us, paused.state) == (None, "paused")
    assert paused.pause is not None
    assert (paused.pause.by, paused.pause.reason, paused.pause.since) == ("ann", "moving house", at(NOON))
    resumed = resume(paused, NOON + 5 * MINUTE + 1)
    assert resumed.jobs == ()
    assert (resumed.schedule.due_us, resumed.schedule.state) == (NOON + 6 * MINUTE, "active")


def test_an_edited_schedule_begins_anew_with_the_next_tick_of_its_new_rule():
    schedule = a_schedule(Every(hours=1))
    other = msgspec.structs.replace(schedule.definition, rule_text=text_of(Every(minutes=1)))
    edited = redefine(schedule, other, NOON + 30 * MINUTE)
    assert edited.jobs == ()
    assert edited.schedule.next_us == NOON + 31 * MINUTE


def test_the_next_tick_can_be_skipped():
    skipped = skip_next(a_schedule(), NOON).schedule
    assert (skipped.next_us, skipped.skipped) == (NOON + 2 * MINUTE, 1)
    assert plan(skipped, NOON + MINUTE).jobs == ()
    assert ticks(plan(skipped, NOON + 2 * MINUTE)) == [2]


def test_a_run_by_hand_has_no_tick_and_moves_none():
    ran = run_now(a_schedule(), NOON)
    [job] = ran.jobs
    assert (job.schedule, job.tick, job.run_at) == ("s", None, None)
    assert (ran.schedule.last_job_id, ran.schedule.next_us, ran.schedule.fired) == (job.id, NOON + MINUTE, 0)


def test_a_run_by_hand_waits_for_no_other_job():
    schedule = a_schedule(Every(minutes=1, overlap="skip"), last_job_id="01970000-0000-7000-8000-000000000000")
    ran = run_now(schedule, NOON + MINUTE)
    assert (len(ran.jobs), ran.unless_live, ran.otherwise) == (1, None, None)
    assert ran.schedule.last_job_id == ran.jobs[0].id


def test_a_tick_says_what_to_do_while_the_last_job_is_live():
    first = plan(a_schedule(Every(minutes=1, overlap="skip")), NOON + MINUTE)
    assert first.unless_live is None
    second = plan(first.schedule, NOON + 2 * MINUTE)
    assert second.unless_live == first.jobs[0].id
    assert second.otherwise is not None
    assert (second.otherwise.skipped, second.otherwise.fired, second.otherwise.last_job_id) == (1, 1, first.jobs[0].id)
    assert second.otherwise.revision == second.schedule.revision


def test_a_schedule_that_was_retired_makes_up_for_its_ticks_when_it_comes_back():
    away = retire(a_schedule()).schedule
    assert (away.due_us, away.state, away.next_tick) == (None, "retired", None)
    back = revive(away).schedule
    assert ticks(plan(back, NOON + 5 * MINUTE)) == [5]


def test_a_schedule_ends():
    schedule = a_schedule(Every(minutes=1, end=at(NOON + MINUTE)))
    done = plan(schedule, NOON + MINUTE)
    assert ticks(done) == [1]
    assert (done.schedule.next_us, done.schedule.due_us, done.schedule.state) == (None, None, "ended")


def test_jitter_is_spread_and_the_same_for_the_same_tick():
    schedule = a_schedule(Every(minutes=1, missed="all", most_missed=100, jitter=30))
    done, again = plan(schedule, NOON + 100 * MINUTE), plan(schedule, NOON + 100 * MINUTE)
    late = [lateness(job) for job in done.jobs]
    assert late == [lateness(job) for job in again.jobs]
    assert min(late) >= 0
    assert max(late) < 30
    assert len(set(late)) == 100
    assert 10 < sum(late) / 100 < 20


def test_a_schedule_whose_rule_cannot_be_followed_is_looked_at_again_later():
    later = postpone(a_schedule(), NOON, "no such zone").schedule
    assert (later.error, later.due_us, later.next_us) == ("no such zone", NOON + MINUTE, NOON + MINUTE)
    mended = plan(later, NOON + MINUTE).schedule
    assert (mended.error, mended.retry_us) == (None, None)


def test_a_rule_that_nobody_understands_can_be_replaced():
    strange = msgspec.structs.replace(a_schedule().definition, rule_text='{"kind":"moon"}')
    schedule = a_schedule(definition=strange)
    good = a_schedule().definition
    assert redefine(schedule, good, NOON + 5 * MINUTE).schedule.next_us == NOON + 6 * MINUTE
    assert pause(schedule, NOON + 5 * MINUTE, "ann", None).schedule.state == "paused"
    assert len(run_now(schedule, NOON + 5 * MINUTE).jobs) == 1


def test_the_next_ticks_can_be_looked_at():
    assert preview(Every(hours=1), NOON, 2) == [at(NOON + 60 * MINUTE), at(NOON + 120 * MINUTE)]
    assert preview(Every(hours=1, end=at(NOON)), NOON, 2) == []


@pytest.mark.parametrize("rule", [Every(minutes=1), Cron("* 9-17 * * MON-FRI")])
def test_the_last_ticks_are_those_that_a_walk_from_the_beginning_finds(rule: Any):
    """The first of January 2026 is a Thursday: the walk back crosses nights and a weekend."""
    schedule = a_schedule(rule)
    now = NOON + 6 * 24 * 60 * MINUTE
    handled = plan(schedule, now).schedule
    walked = [tick for tick in preview(rule, NOON, 10_000) if tick <= at(now)]
    assert past(handled, now, 700) == walked[::-1][:700]
    assert past(handled, now, 1) == walked[-1:]
    assert past(schedule, now, 5) == []
    assert past(skip_next(schedule, NOON).schedule, NOON, 5) == []
