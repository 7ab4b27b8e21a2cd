"""Breakers of tasks: how they stand, opening and closing them by hand."""

from __future__ import annotations

from datetime import datetime

from hawser.api.bodies import Controlled, Out, ReasonIn
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.control import known_task
from hawser.client.operations import switch_breaker
from hawser.store import BreakerStatus


class BreakerView(Out):
    """The breaker of a task."""

    task: str
    open: bool
    since: datetime
    by: str
    by_hand: bool
    """Whether a person opened it: then a person must close it."""
    share: float | None
    window: float | None
    least: int | None
    probe_every: float | None
    """What the code declares; null when it declares none."""
    failed: int
    attempts: int
    """What it opened on."""
    probe_at: datetime | None
    """When the next probe may start."""
    probe: str | None
    """The job of the last probe."""


class BreakersOut(Out):
    """All breakers."""

    breakers: list[BreakerView]


async def ls(call: Call[NoBody, NoQuery]) -> Answer:
    """The breakers that are declared or open."""
    return Answer(BreakersOut(breakers=[breaker_view(status) for status in await call.store.breakers()]))


def breaker_view(status: BreakerStatus) -> BreakerView:
    rule = status.rule
    return BreakerView(
        task=status.task,
        open=status.open,
        since=status.since,
        by=status.by,
        by_hand=status.by_hand,
        share=None if rule is None else rule.share,
        window=None if rule is None else rule.window,
        least=None if rule is None else rule.least,
        probe_every=None if rule is None else rule.probe_every,
        failed=status.failed,
        attempts=status.attempts,
        probe_at=status.probe_at,
        probe=status.probe.id if status.probe else None,
    )


async def open_by_hand(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Open the breaker of a task: none of its jobs starts until it is closed by hand."""
    return await _switch(call, open=True)


async def close_by_hand(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Close the breaker of a task; what failed before does not count."""
    return await _switch(call, open=False)


async def _switch(call: Call[ReasonIn, NoQuery], *, open: bool) -> Answer:  # a word of breakers
    actor = call.actor(call.body.reason)
    return Answer(Controlled(changed=await switch_breaker(call.store, call.app.tasks, known_task(call), actor, open=open)))
