"""When schedules have their ticks."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hawser import ConfigError, Cron, Every
from hawser.clock import at, from_datetime
from hawser.schedule.rule import AnyRule, rule_of, text_of
from tests.schedules.sweep import FIXED, REAL, ZONES, around_changes, differing


def ticks(rule: AnyRule, start: datetime, count: int = 3) -> list[datetime]:
    found: list[datetime] = []
    tick: int | None = from_datetime(start)
    for _ in range(count):
        tick = rule.after(tick) if tick is not None else None
        if tick is None:
            break
        found.append(at(tick))
    return found


def utc(year: int, *rest: int) -> datetime:
    return datetime(year, *rest, tzinfo=UTC)  # type: ignore[arg-type,misc]  # a few numbers


@pytest.mark.parametrize("tz", ZONES)
def test_rule_and_oracle_agree_around_every_change_of_a_zone(tz):
    """The whole years are swept by `python -m tests.schedules.sweep`."""
    windows = around_changes(tz)
    assert len(windows) == 18
    wrong = [
        (expression, differ)
        for expression in FIXED + REAL
        for minutes in windows
        if (differ := differing(expression, tz, minutes)[1])
    ]
    assert wrong == []


# Berlin: on 29 March 2026 02:00 becomes 03:00 (01:00 UTC), on 25 October 03:00 becomes 02:00 (01:00 UTC).


def test_a_fixed_time_that_does_not_exist_fires_at_the_first_instant_after():
    rule = Cron("30 2 * * *", tz="Europe/Berlin")
    assert ticks(rule, utc(2026, 3, 28)) == [utc(2026, 3, 28, 1, 30), utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]


def test_several_fixed_times_that_do_not_exist_fire_once():
    rule = Cron("0,20,40 2 * * *", tz="Europe/Berlin")
    assert ticks(rule, utc(2026, 3, 29), 2) == [utc(2026, 3, 29, 1), utc(2026, 3, 30)]


def test_a_fixed_time_that_exists_twice_fires_the_first_time():
    rule = Cron("30 2 * * *", tz="Europe/Berlin")
    assert ticks(rule, utc(2026, 10, 24, 12), 2) == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]


def test_a_fixed_time_is_not_found_again_from_within_the_second_hour():
    rule = Cron("50 2 * * *", tz="Europe/Berlin")
    assert ticks(rule, utc(2026, 10, 25, 1, 45), 1) == [utc(2026, 10, 26, 1, 50)]


def test_hourly_wildcards_follow_real_hours():
    rule = Cron("@hourly", tz="Europe/Berlin")
    assert ticks(rule, utc(2026, 3, 28, 23, 30), 3) == [utc(2026, 3, 29, hour) for hour in (0, 1, 2)]
    assert ticks(rule, utc(2026, 10, 24, 23, 30), 3) == [utc(2026, 10, 25, hour) for hour in (0, 1, 2)]


def test_a_rule_with_seconds_follows_the_same_rule():
    rule = Cron("*/30 30 2 * * *", tz="Europe/Berlin")
    assert rule.fixed
    assert ticks(rule, utc(2026, 3, 29), 2) == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]
    assert ticks(Cron("15 * * * * *"), utc(2026, 1, 1), 2) == [utc(2026, 1, 1, 0, 0, 15), utc(2026, 1, 1, 0, 1, 15)]


def test_midnight_that_does_not_exist_is_the_first_instant_of_the_day():
    """Santiago: on 6 September 2026 the day begins at 01:00."""
    rule = Cron("@daily", tz="America/Santiago")
    assert ticks(rule, utc(2026, 9, 5, 12), 2) == [utc(2026, 9, 6, 4), utc(2026, 9, 7, 3)]


def test_a_rule_finds_a_day_that_comes_every_four_years():
    assert ticks(Cron("0 12 29 2 *"), utc(2026, 1, 1), 2) == [utc(2028, 2, 29, 12), utc(2032, 2, 29, 12)]


@pytest.mark.parametrize(
    ("alias", "expression"),
    [("@yearly", "0 0 1 1 *"), ("@Monthly", "0 0 1 * *"), ("@weekly", "0 0 * * 0"), (" @daily ", "0 0 * * *")],
)
def test_aliases_are_known(alias, expression):
    assert ticks(Cron(alias, tz="Asia/Kolkata"), utc(2026, 1, 1)) == ticks(Cron(expression, tz="Asia/Kolkata"), utc(2026, 1, 1))


def test_an_interval_counts_from_the_epoch_or_from_its_start():
    assert ticks(Every(minutes=5), utc(2026, 1, 1, 0, 1), 2) == [utc(2026, 1, 1, 0, 5), utc(2026, 1, 1, 0, 10)]
    start = utc(2026, 1, 1, 0, 3)
    rule = Every(minutes=5, start=start)
    assert ticks(rule, utc(2025, 1, 1), 2) == [start, start + timedelta(minutes=5)]
    assert ticks(rule, start, 1) == [start + timedelta(minutes=5)]


@pytest.mark.parametrize("make", [lambda **dates: Every(hours=1, **dates), lambda **dates: Cron("@hourly", **dates)])
def test_there_are_no_ticks_before_the_start_and_after_the_end(make):
    rule = make(start=utc(2026, 1, 1, 12), end=utc(2026, 1, 1, 14))
    assert ticks(rule, utc(2025, 1, 1), 10) == [utc(2026, 1, 1, hour) for hour in (12, 13, 14)]


def test_a_tick_lies_after_the_instant_that_is_given_however_close():
    for rule in (Cron("* * * * *", tz="Europe/Berlin"), Cron("0 0 * * *"), Every(minutes=1)):
        noon = from_datetime(utc(2026, 5, 1))
        assert rule.after(noon - 1) == noon
        assert (rule.after(noon) or 0) > noon
        assert rule.after(noon + 1) == rule.after(noon)


def test_rules_are_told_in_words():
    assert Cron("30 2 * * *", tz="Europe/Berlin").words == "At 02:30 every day (Europe/Berlin)"
    assert Cron("@daily").words == "At 00:00 every day (UTC)"
    said = [Every(minutes=5), Every(hours=1), Every(hours=1, minutes=30), Every(seconds=1), Every(days=1, seconds=2.5)]
    assert [rule.words for rule in said] == [
        "Every 5 minutes",
        "Every hour",
        "Every 1 hour 30 minutes",
        "Every second",
        "Every 1 day 2.5 seconds",
    ]


@pytest.mark.parametrize(
    "rule",
    [
        Cron("0 9 * * MON-FRI", tz="Asia/Tokyo", missed="all", most_missed=7, overlap="skip", jitter=5),
        Every(minutes=5, start=utc(2026, 1, 1), end=utc(2027, 1, 1), missed="skip", jitter=timedelta(seconds=9)),
    ],
)
def test_a_rule_comes_back_from_its_text(rule):
    assert rule_of(text_of(rule)) == rule


def test_the_payload_is_no_part_of_the_text():
    assert rule_of(text_of(Every(hours=1, payload={"secret": 1}))) == Every(hours=1)


CRON: Any = Cron
EVERY: Any = Every


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CRON("61 * * * *"), "expression: '61 * * * *': bad minute"),
        (lambda: CRON("* * *"), "wrong number of fields; it has 5 fields"),
        (lambda: CRON("@dayly"), "did you mean '@daily'"),
        (lambda: CRON("0 0 31 2 *"), "names no day that ever comes; check day and month"),
        (lambda: CRON(5), "expression: 5 is not a text"),
        (lambda: CRON(["0"]), "is not a text"),
        (lambda: CRON("0," * 200 + "0 * * * *"), "of up to 256 characters"),
        (lambda: CRON("@daily", tz="../etc/passwd"), "tz: no time zone"),
        (lambda: CRON("@daily", tz="localtime"), "tz: no time zone"),
        (lambda: CRON("@daily", tz=None), "tz: None is not a text"),
        (lambda: EVERY(hours=0), "an interval of 0 s; use 1 s to 10 years"),
        (lambda: EVERY(seconds=0.5), "an interval of 0.5 s"),
        (lambda: EVERY(minutes=-5), "minutes: -5 is not a number from 0"),
        (lambda: EVERY(hours=float("nan")), "hours: nan is not a number"),
        (lambda: EVERY(hours="1"), "hours: '1' is not a number"),
        (lambda: EVERY(hours=1, missed="later"), "missed: 'later' is not known; use skip, once or all"),
        (lambda: EVERY(hours=1, overlap="wait"), "overlap: 'wait' is not known; use allow or skip"),
        (lambda: EVERY(hours=1, most_missed=0), "most_missed: 0 is not a whole number from 1"),
        (lambda: EVERY(hours=1, jitter=-1), "jitter: -1 is not a time"),
        (lambda: EVERY(hours=1, start=utc(2026, 1, 1).replace(tzinfo=None)), "is not a datetime with a time zone"),
        (lambda: EVERY(hours=1, end="2026"), "end: '2026' is not a datetime"),
        (lambda: EVERY(hours=1, start=utc(2027, 1, 1), end=utc(2026, 1, 1)), "end: it lies before the start"),
        (lambda: EVERY(hours=1, payload=[1]), "payload: list; use a dict"),
    ],
)
def test_what_is_wrong_is_refused_at_definition_by_name(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert said in str(error.value)
