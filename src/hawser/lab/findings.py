"""Parts of findings that experiments under faults have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from hawser.lab.checker import Verdict
from hawser.lab.journal import Record, What
from hawser.lab.plot import Line, Plot

SHOWN_AS: Final = {
    What.ACCEPTED: "accepted",
    What.START: "started",
    What.EFFECT: "effects",
    What.STALE: "stale refused",
}


def told(verdict: Verdict) -> list[str]:
    """The violations as lines."""
    return [f"{kind}: {'; '.join(examples)}" for kind, examples in verdict.violations.items()]


def over_time(title: str, records: Sequence[Record], step: float = 1.0) -> Plot:
    """What the journal tells, by second, with a mark for each fault."""
    first = records[0].at if records else 0

    def second(record: Record) -> float:
        return (record.at - first) / 1e9

    counts = {what: Counter[int]() for what in SHOWN_AS}
    for record in records:
        if record.what in counts:
            counts[record.what][int(second(record) / step)] += max(1, len(record.runs))
    last = int(second(records[-1]) / step) if records else 1
    return Plot(
        title=title,
        x="seconds; a thin line for each fault",
        lines=[
            Line(f"{SHOWN_AS[what]}/s", [(at * step, found[at] / step) for at in range(last + 1)])
            for what, found in counts.items()
        ],
        marks=[second(record) for record in records if record.what is What.FAULT],
    )
