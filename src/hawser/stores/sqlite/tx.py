"""One write transaction: its connection, its time, and the counts that it will leave behind."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from hawser.clock import to_us
from hawser.job import FOREVER, UNTIL_START, KeyScope, NewJob, State
from hawser.policy import QueuePolicy
from hawser.stores.order import GROUPED, Lane, ageing_of
from hawser.stores.statements import load
from hawser.stores.tally import MINUTE_US

SQL: Mapping[str, str] = load(
    "hawser.stores.sqlite",
    "jobs.sql",
    "schedules.sql",
    "operator.sql",
    "access.sql",
    "charts.sql",
    "requests.sql",
    "bulk.sql",
    "declined.sql",
    "steps.sql",
    "output.sql",
    "limits.sql",
    "edits.sql",
    "debounce.sql",
    "breakers.sql",
    "turns.sql",
    "group_limits.sql",
    "dependencies.sql",
    "expiry.sql",
    "events.sql",
    "batches.sql",
)

_HELD = "held"
_STATES = (state.value for state in State if state is not State.READY)
_PLACES = (*(lane.name for lane in Lane), *_STATES, "grouped", _HELD)


class Tx:
    """What the pieces of work in one transaction share."""

    def __init__(self, con: sqlite3.Connection, now: int, sql: Mapping[str, str]) -> None:
        self.con = con
        self.now = now
        self.sql = sql
        self._depth: defaultdict[tuple[str, str, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._tally: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._keys: defaultdict[str, int] = defaultdict(int)
        self._controls: list[tuple[Any, ...]] | None = None
        self._paused: set[tuple[str, str]] | None = None
        self._opened: dict[tuple[str, int, str, str], int] = {}
        """Groups that jobs have come to: when the first of those is due."""
        self._reopened: set[tuple[str, str]] = set()
        """Tasks and groups of which a job has left."""
        self._turn: int | None = None
        self._turn_was = 0
        self._dependencies: bool | None = None
        self._batches: dict[str, dict[str, int]] = {}
        """Batches whose counts changed, and by how much."""
        self._intake: dict[str, tuple[int | None, int | None]] | None = None

    def move(self, queue: str, task: str, priority: int, place: Lane | State, by: int) -> None:
        """Jobs come to a place or leave it."""
        self._depth[queue, task, priority][place.name if isinstance(place, Lane) else place.value] += by

    def wait(self, queue: str, task: str, priority: int, lane: int, by: int) -> None:
        """Jobs come to a lane, or leave it; its number says whether they have a group."""
        self.move(queue, task, priority, Lane(lane % GROUPED), by)
        if lane >= GROUPED:
            self._depth[queue, task, priority]["grouped"] += by

    def open_group(self, queue: str, task: str, priority: int, group: str | None, due_at: int) -> None:
        """The one way to say that a job of a group waits. Without it no claim looks for the job."""
        if group is not None:
            place = (queue, priority, task, group)
            self._opened[place] = min(due_at, self._opened.get(place, due_at))

    def reopen_group(self, task: str, group: str | None) -> None:
        """A job of the group has left: if the group is kept back, the next claim looks at it again."""
        if group is not None:
            self._reopened.add((task, group))

    def next_turn(self) -> int:
        """A turn behind all others."""
        if self._turn is None:
            found = self.con.execute(self.sql["last_turn"]).fetchone()
            self._turn = self._turn_was = int(found[0]) if found else 0
        self._turn += 1
        return self._turn

    def _open_groups(self) -> None:
        rows = [
            (*place, self.next_turn(), None) if due_at <= self.now else (*place, None, due_at)
            for place, due_at in self._opened.items()
        ]
        self.con.executemany(self.sql["open_group"], rows)
        self._opened.clear()

    def hold(self, queue: str, task: str, priority: int, by: int) -> None:
        """Jobs come to wait for others, or do so no longer; they are counted in their lane, too."""
        self._depth[queue, task, priority][_HELD] += by

    def any_dependency(self) -> bool:
        """Whether any job waits for another."""
        if self._dependencies is None:
            self._dependencies = self.con.execute(self.sql["any_dependency"]).fetchone() is not None
        return self._dependencies

    def dependencies_changed(self) -> None:
        """A job waits for another from now on."""
        self._dependencies = True

    def count_member(self, batch: str, before: State | None, after: State | None) -> None:
        """A member of a batch is in another state; None stands for not being one. Waiting and running are one state to it."""
        change = self.touch_batch(batch)
        change["members"] += (after is not None) - (before is not None)
        for state, by in ((before, -1), (after, +1)):
            if state is not None and state.finished:
                change[state.value] += by
        if after is State.DEAD:
            change["died"] = 1

    def touch_batch(self, batch: str) -> dict[str, int]:
        """Look at the batch again at the end of this work."""
        return self._batches.setdefault(batch, {"members": 0, "done": 0, "dead": 0, "cancelled": 0, "died": 0})

    def take_batch_changes(self) -> dict[str, dict[str, int]]:
        """What has changed since the last look."""
        changes, self._batches = self._batches, {}
        return changes

    def tally(self, queue: str, task: str, event: str, count: int = 1) -> None:
        self._tally[queue, task, event] += count

    def flush(self) -> None:
        """Write the counts, so that what follows in this transaction, or comes after it, finds them."""
        if self._depth:
            moves = [(*lane, *(places.get(place, 0) for place in _PLACES)) for lane, places in self._depth.items()]
            self.con.executemany(self.sql["move"], moves)
            self._depth.clear()
        if self._tally:
            minute = self.now // MINUTE_US
            self.con.executemany(self.sql["tally"], [(minute, *key, count) for key, count in self._tally.items()])
            self._tally.clear()
        if self._opened:
            self._open_groups()
        if self._reopened:
            # Only a limit per group keeps one back. Where there is none, to ask for each group costs a settled job a fifth more.
            limited = {name for _, name, what, *_, per_group, _ in self.controls() if what == 0 and per_group}
            names = [(self.now, task, group) for task, group in self._reopened if task in limited]
            self.con.executemany(self.sql["reopen_group"], names)
            self._reopened.clear()
        if self._turn is not None and self._turn > self._turn_was:
            self.con.execute(self.sql["note_turn"], (str(self._turn),))
            self._turn_was = self._turn
        if self._keys:
            self.con.executemany(self.sql["count_keys"], [{"queue": queue, "keys": n} for queue, n in self._keys.items()])
            self._keys.clear()

    def holder(self, scope: KeyScope) -> str | None:
        """The id of the job that holds the key now."""
        found = self.con.execute(self.sql["holder"], {**scope._asdict(), "now": self.now}).fetchone()
        return found[0] if found else None

    def hold_key(self, job: NewJob) -> None:
        """Give a new job its key; no other job holds it."""
        self.sweep_keys(4)
        until = None if job.key_ttl in (0, FOREVER, UNTIL_START) else self.now + to_us(job.key_ttl)
        self._hold(job.key_scope, job.id, until)

    def hold_live_key(self, scope: KeyScope, job_id: str) -> None:
        """Give a job that is live again its key; no other job holds it."""
        self._hold(scope, job_id, None)

    def _hold(self, scope: KeyScope, job_id: str, until: int | None) -> None:
        # A window that has run out may still lie there: it makes way, and the count stays.
        lies = self.con.execute(self.sql["key_lies"], scope._asdict()).fetchone()
        self.con.execute(self.sql["hold_key"], {**scope._asdict(), "job_id": job_id, "until": until})
        if not lies:
            self._keys[scope.queue] += 1

    def move_key(self, here: KeyScope, there: KeyScope, job_id: str, until: int | None) -> None:
        """The job's hold goes along into another scope, where no other job holds the key."""
        put_off = self.con.execute(self.sql["debounced"], here._asdict()).fetchone()
        self._keys[here.queue] -= self.con.execute(self.sql["let_go"], {**here._asdict(), "job_id": job_id}).rowcount
        self._hold(there, job_id, until)
        if put_off is not None:
            self.con.execute(self.sql["note_debounced"], {**there._asdict(), "newest": put_off[1], "until": put_off[2]})

    def free_key(self, scope: KeyScope, job_id: str) -> None:
        """The job holds its key no longer, unless its window goes on."""
        gone = self.con.execute(self.sql["free_key"], {**scope._asdict(), "job_id": job_id, "now": self.now}).rowcount
        if gone:
            self._keys[scope.queue] -= gone

    def sweep_keys(self, limit: int) -> None:
        """Forget up to `limit` windows that have run out. The hold of a job that is still live ends with the job from now on."""
        for *scope, live in self.con.execute(self.sql["windows_over"], {"now": self.now, "limit": limit}).fetchall():
            self.con.execute(self.sql["outlive_window" if live else "forget_key"], scope)
            if not live:
                self._keys[scope[0]] -= 1

    def paused(self, kind: str, name: str) -> bool:
        if self._paused is None:
            self._paused = {(row[0], row[1]) for row in self.controls() if row[2] == 1}
        return (kind, name) in self._paused

    def controls(self) -> list[tuple[Any, ...]]:
        """What a claim must obey."""
        if self._controls is None:
            self._controls = self.con.execute(self.sql["controls"], {"now": self.now}).fetchall()
        return self._controls

    def max_depth(self, queue: str) -> int | None:
        return self._intake_of(queue)[0]

    def max_attempts(self, queue: str) -> int | None:
        return self._intake_of(queue)[1]

    def _intake_of(self, queue: str) -> tuple[int | None, int | None]:
        if self._intake is None:
            rows = self.con.execute(self.sql["intake"])
            self._intake = {name: (max_depth, max_attempts) for name, max_depth, max_attempts in rows}
        return self._intake.get(queue, (None, None))

    def ageing(self, queue: str) -> int | None:
        """Asked by claims of queues in which several priorities wait."""
        row = self.con.execute(self.sql["policy"], {"queue": queue}).fetchone()
        return ageing_of(None if row is None else msgspec.json.decode(row[0], type=QueuePolicy))

    def waiting(self, queue: str) -> int:
        """Jobs of the queue in state ready."""
        self.flush()
        return int(self.con.execute(self.sql["waiting"], {"queue": queue}).fetchone()[0])

    def controls_changed(self) -> None:
        """Pauses, limits or policies were written in this transaction: read them again."""
        self._controls = None
        self._paused = None
        self._intake = None
