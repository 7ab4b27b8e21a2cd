"""A primary that is replaced and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hawser.lab.experiment import Lab
from hawser.lab.experiments.failover import LEFT_WITHIN, STUCK_AFTER, UNDEAD, played
from hawser.lab.findings import told
from hawser.lab.load import quiet
from hawser.lab.store_under_test import StorePlace
from tests.drills.case import Case, Seen

RATE = 100.0


def zombie_primary(folder: Path) -> Seen:
    lab = Lab(StorePlace("postgres", "postgresql://"), folder, seed=1, quick=True, show=quiet, numbers={})
    found = asyncio.run(played(lab, ["zombie"], RATE, synchronous=True))
    counts = found.verdict.counts
    broken = [*told(found.verdict), *found.amiss()]
    text = (
        f"{counts['accepted']} accepted, {counts['lost']} lost, {counts['settled_twice']} settled twice, back after"
        f" {max(found.back):.1f} s, zombie acks {found.zombie_acks} of {found.zombie_tries}, sessions on the zombie"
        f" {found.zombie_sessions_most[0]} at most and {found.zombie_sessions_left[0]} in the end, stuck {len(found.stuck)}"
    )
    return Seen(held=not broken, text="; ".join([text, *broken]))


CASES = [
    Case(
        name="zombie-primary",
        store="postgres",
        fault="the primary is frozen under load, its standby is promoted, the old primary is thawed",
        wanted=(
            f"nothing lost or accepted there, workers back, no session on it {UNDEAD + LEFT_WITHIN:g} s later, no job stuck"
            f" {STUCK_AFTER:g} s after the promotion"
        ),
        run=zombie_primary,
    ),
]
