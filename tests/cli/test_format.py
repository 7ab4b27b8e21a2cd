"""Times in and out, and text made harmless."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from hawser.cli.format import ago, clean, clean_lines, duration, per_second
from hawser.cli.when import instant, past, seconds_of

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.35, "350 ms"),
        (0.9999, "1 s"),
        (2.5, "2.5 s"),
        (42, "42 s"),
        (59.7, "1 min"),
        (90, "1 min 30 s"),
        (300, "5 min"),
        (3_600, "1 h"),
        (3_605, "1 h"),
        (5_400, "1 h 30 min"),
        (90_000, "1 d 1 h"),
        (86_405, "1 d"),
        (float("inf"), "forever"),
    ],
)
def test_a_duration_in_words(seconds: float, words: str):
    assert duration(seconds) == words


def test_a_distance_in_time_has_one_unit():
    assert ago(NOON - timedelta(seconds=95), NOON) == "1 min ago"
    assert ago(NOON + timedelta(hours=30), NOON) == "in 1 d"
    assert ago(NOON, NOON) == "0 s ago"


@pytest.mark.parametrize(("rate", "words"), [(0, "0/s"), (0.01667, "0.0167/s"), (12.345, "12.3/s"), (12345.6, "12,346/s")])
def test_a_rate_in_words(rate: float, words: str):
    assert per_second(rate) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("90s", 90.0),
        ("5m", 300.0),
        ("5 min", 300.0),
        ("1h30m", 5_400.0),
        ("1H 30M", 5_400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("", None),
        ("m", None),
        ("-5", None),
        ("5 apples", None),
        ("5mm", None),
        ("1e9", None),
        ("inf", None),
        ("٣", None),
        ("1h!", None),
    ],
)
def test_a_duration_is_read(text: str, seconds: float | None):
    assert seconds_of(text) == seconds


def test_an_instant_needs_a_zone():
    assert instant("2026-07-01T14:00+02:00") == NOON
    assert instant("2026-07-01 12:00Z") == NOON
    for text in ("2026-07-01T12:00", "12:00", "soon", "0001-01-01T00:00Z", "9999-12-31T23:59-12:00"):
        with pytest.raises(click.BadParameter):
            instant(text)


def test_a_moment_in_the_past_may_be_so_long_ago():
    assert abs(datetime.now(UTC) - past("1h") - timedelta(hours=1)) < timedelta(seconds=10)
    assert past("2026-07-01T12:00Z") == NOON


def test_text_is_made_harmless_and_otherwise_left_alone():
    assert clean("naïve 日本語 [b] \\") == "naïve 日本語 [b] \\"
    assert clean("a\x1b[31m\n\x9b\u202e\ud800\x7f") == "a\\x1b[31m\\n\\x9b\\u202e\\ud800\\x7f"
    assert clean("abcdef", 4) == "abc…"
    assert list(clean_lines("a\r\n\tb\n\x1bc")) == ["a", "    b", "\\x1bc"]
