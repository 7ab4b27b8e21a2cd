"""A queue's policy on the command line: written in one word, shown in a few."""

from __future__ import annotations

from typing import Final, Literal

import click

from hawser.backoff import BackoffRule, Exponential, Fixed, Linear
from hawser.cli.format import duration
from hawser.cli.when import seconds_of
from hawser.errors import ConfigError
from hawser.policy import DEFAULT_AGEING, QueuePolicy

NOTHING: Final = "none"


def or_none(text: str) -> int | Literal["none"]:
    """A whole number, or the word that takes it back."""
    if text == NOTHING:
        return "none"
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise click.BadParameter(f"{text!r} is not a whole number; write none for nothing")
    return int(text)


def backoff(text: str) -> BackoffRule | Literal["none"]:
    """`exponential:30:3600`, `linear:30:3600`, `fixed:30`, or the word that takes it back."""
    if text == NOTHING:
        return "none"
    kind, *numbers = text.split(":")
    try:
        seconds = [float(number) for number in numbers]
        match kind, seconds:
            case "exponential", [base, cap]:
                return Exponential(base=base, cap=cap)
            case "linear", [step, cap]:
                return Linear(step=step, cap=cap)
            case "fixed", [every]:
                return Fixed(every=every)
    except (ValueError, ConfigError):
        pass
    raise click.BadParameter(
        f"{text!r} is not a backoff; write for example exponential:30:3600, linear:30:3600, fixed:30, or none"
    )


def ageing(text: str) -> float | Literal["none"]:
    """A time such as 10m, or the word for strict priority."""
    if text == NOTHING:
        return "none"
    if (seconds := seconds_of(text)) is None:
        raise click.BadParameter(f"{text!r} is not a time; write for example 90s or 10m, or none for strict priority")
    return seconds


def policy_words(policy: QueuePolicy) -> str:
    """What is set, in a few words; nothing when nothing is."""
    said = []
    if policy.max_attempts is not None:
        said.append(f"{policy.max_attempts:,} attempts")
    if policy.backoff is not None:
        said.append(backoff_words(policy.backoff))
    if policy.concurrency is not None:
        said.append(f"{policy.concurrency:,} at once per process")
    if policy.ageing is None:
        said.append("strict priority")
    elif policy.ageing != DEFAULT_AGEING:
        said.append(f"ageing after {duration(policy.ageing)}")
    return ", ".join(said)


def backoff_words(rule: BackoffRule) -> str:
    jitter = {"full": "", "none": " without jitter"}.get(rule.jitter, f" with {rule.jitter} jitter")
    match rule:
        case Exponential():
            return f"exponential from {duration(rule.base)} to {duration(rule.cap)}{jitter}"
        case Linear():
            return f"linear by {duration(rule.step)} to {duration(rule.cap)}{jitter}"
        case Fixed():
            return f"every {duration(rule.every)}{jitter}"
