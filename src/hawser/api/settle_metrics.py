"""Counts what workers over HTTP have settled."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.api.pull_workers import PullWorkers
from hawser.store import SettleAnswer, Settled, Settlement
from hawser.telemetry.events import SettledBatch
from hawser.telemetry.meter import Meter


def count_settled(
    meter: Meter, pull_workers: PullWorkers, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer]
) -> None:
    """Count what the store answered. How long a run took is known of those that were claimed here."""
    answered = list(zip(settlements, answers, strict=True))
    known = pull_workers.settles(one.id for one, answer in answered if answer.said is not Settled.LOST)
    # A repeat was counted when it was written: only the caller did not hear of it.
    new = [(one, answer) for one, answer in answered if answer.said is not Settled.REPEATED]
    here = [(one, answer) for one, answer in new if one.id in known]
    if here:
        jobs, seconds = zip(*(known[one.id] for one, _ in here), strict=True)
        meter.settled(SettledBatch([one for one, _ in here], [answer for _, answer in here], jobs, seconds))
    others = [(one, answer) for one, answer in new if one.id not in known]
    meter.answered([one for one, _ in others], [answer for _, answer in others])
