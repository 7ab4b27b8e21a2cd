"""What was due stays due when the clock is set back.

A job is due by its `run_at`. After the clock was set back by an hour, a backlog that was due lies an hour ahead, and would wait
for it while new jobs run. So the file keeps the highest time that any process has had, and how often that was found to be too
high. The process that finds it so makes what was due by then due now: once, in the transaction that finds it, before anything
else is done in it. What is delayed after that waits for its time.
"""

from __future__ import annotations

from typing import Final

from hawser.clock import Watch, to_us
from hawser.stores.order import GROUPED
from hawser.stores.sqlite.tx import Tx

TIME_NOTE_EVERY_US: Final = to_us(1.0)
"""How old the highest time in the file may be when something else is written."""

NOTE_ALONE_EVERY: Final = to_us(10.0)
"""The same when nothing else is: it would wake up every other process."""


class SetBack:
    """The highest time of the store, as one process sees to it. Here its writer does."""

    def __init__(self, clock: Watch) -> None:
        self._clock = clock
        self._latest = 0
        self._steps = -1
        self._seen = clock.set_back

    def before(self, tx: Tx) -> None:
        """At the start of a transaction: see whether the clock was set back since the last one."""
        found = tx.con.execute(tx.sql["latest"]).fetchone()
        self._latest, steps = map(int, found[0].split(":")) if found else (0, 0)
        highest = self._latest
        if self._clock.set_back > self._seen and steps == self._steps:
            # This process saw it, and none has handled it: we may know a higher time than the file does.
            highest = max(highest, self._clock.before)
        if tx.now < highest:
            _make_due(tx, highest)
            steps += 1
            self._note(tx, steps)
        self._steps, self._seen = steps, self._clock.set_back

    def after(self, tx: Tx, *, changed: bool) -> None:
        """At the end of a transaction: note its time, unless that was done a moment ago."""
        if tx.now - self._latest > (TIME_NOTE_EVERY_US if changed else NOTE_ALONE_EVERY):
            self._note(tx, self._steps)

    def _note(self, tx: Tx, steps: int) -> None:
        tx.con.execute(tx.sql["note_latest"], (f"{tx.now}:{steps}",))
        self._latest = tx.now


def _make_due(tx: Tx, before: int) -> None:
    tx.con.execute(tx.sql["make_groups_due"], (tx.now, tx.now, before))
    tx.con.execute(tx.sql["reopen_all_groups"], (tx.now,))
    for queue, task, priority, *depths, grouped in tx.con.execute(tx.sql["all_lanes"]).fetchall():
        for lane in range(2 * GROUPED if grouped else GROUPED):
            if depths[lane % GROUPED]:
                tx.con.execute(tx.sql["make_due"], (tx.now, queue, task, priority, lane, tx.now, before))
