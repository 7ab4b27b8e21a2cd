"""Find: the statements that look for the jobs of a filter, newest first, up to a number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

from hawser.clock import from_datetime
from hawser.job import State
from hawser.job import Waiting as WaitsFor
from hawser.store import (
    Filter,
)
from hawser.stores.postgres.lane_catalog import CatalogView
from hawser.stores.postgres.managed_connection import Work
from hawser.value.indexed import MAX_INDEXED

SCAN: Final = 5_000
"""Jobs that one `find` looks at, again and again for `LOOK_FOR` seconds while it finds none."""

LOOK_FOR: Final = 0.015


SORTED_UP_TO: Final = 10_000
"""Jobs of one table in the lanes of a filter up to which all of them are looked up and sorted."""


_INDEXED: Final = ("key", "parent_id", "schedule", "group_name", "batch")
"""Fields of a filter whose jobs an index has in order."""

ALL_JOBS: Final = ("all_live", "all_done", "all_failed")


_PLACES: Final = {
    "all_live": ("@fresh", "@timed", "@retrying", "@running"),
    "all_done": ("@done",),
    "all_failed": ("@dead", "@cancelled"),
}
"""How the jobs of a table are counted."""


_TABLE_OF: Final = {"all_live": "job", "all_done": "done", "all_failed": "failed"}


_IN_LANES: Final = {"all_live": "live_in_lanes", "all_failed": "failed_in_lanes"}
"""The tables that have an index of lanes."""


def _table(state: State) -> str:
    """The statement that reads the jobs of a state."""
    match state:
        case State.READY | State.RUNNING:
            return "all_live"
        case State.DONE:
            return "all_done"
        case State.DEAD | State.CANCELLED:
            return "all_failed"
        case _:
            assert_never(state)


class Search:
    """The statements of one `find`, from behind a cursor: jobs that match, and how far that looked."""

    def __init__(self, sql: Mapping[str, str], filter: Filter, view: CatalogView, given: int | None) -> None:
        self._sql = sql
        self._filter = filter
        self._given = given
        self._lanes = None if filter.queue is None and filter.task is None else lanes_of(view, filter.queue, filter.task)
        if filter.group is not None:
            of_task = lanes_of(view, None, filter.group.task)
            self._lanes = of_task if self._lanes is None else [lane for lane in self._lanes if lane in of_task]
        state = State.READY if filter.waiting else State.DEAD if filter.group else filter.state
        self._tables: tuple[str, ...] = (_table(state),) if state else ALL_JOBS
        self._begin: list[Any] = []
        self._match: list[Any] = []
        self._running: Sequence[Any] | None = None
        self._by_tag = False
        """Jobs are looked for by the index of tags. It gives no order, so that its jobs have to be few."""

    def may_narrow(self) -> bool:
        """Whether the index of tags may leave fewer jobs to look at than any other."""
        filter = self._filter
        indexed = filter.argument or filter.group or any(getattr(filter, name) for name in _INDEXED)
        return filter.tag is not None and not indexed

    def narrow(self, last: str) -> Work[None]:
        """Look by the index of tags, if few jobs behind the cursor have the tag."""

        async def work(con: Any) -> None:
            await con.execute(self._sql["by_bitmaps"])
            holding = []
            for name in self._tables:
                counted = self._sql["count_tagged"].format(table=_TABLE_OF[name])
                [(count,)] = await con.fetch(counted, last, self._filter.tag, SORTED_UP_TO + 1)
                if count > SORTED_UP_TO:
                    return
                if count:
                    holding.append(name)
            self._by_tag, self._tables = True, tuple(holding)

        return work

    def look(self, last: str, limit: int) -> Work[tuple[Sequence[Any], int, Any]]:
        """One more than so many jobs, if there are; else also how many were looked at, and the last of those. Of one instant:
        what came or went between the two would be left out, or given twice."""

        async def work(con: Any) -> tuple[Sequence[Any], int, Any]:
            counts = None if self._lanes is None else dict(await con.fetch(self._sql["lane_counts"], self._lanes))
            self._running = await self._ids_of_running(con)
            union = self._union(counts)
            if not union:
                return [], 0, None
            found, seen = self._statements(union)
            if self._by_tag:
                await con.execute(self._sql["by_bitmaps"])
            rows = await con.fetch(f"{found} {limit + 1:d}", last, *self._begin, *self._match)
            if len(rows) > limit:
                return rows, 0, None
            [(looked_at, behind)] = await con.fetch(seen, last, *self._begin)
            return rows, looked_at, behind

        return work

    async def _ids_of_running(self, con: Any) -> Sequence[Any] | None:
        """The running jobs, when those are asked for and nothing that has an index is."""
        filter = self._filter
        if filter.state is not State.RUNNING or filter.argument is not None or any(getattr(filter, name) for name in _INDEXED):
            return None
        [(count,)] = await con.fetch(self._sql["count_running"], self._lanes)
        return [id for (id,) in await con.fetch(self._sql["running"], self._lanes, count)] if count > 0 else []

    def _statements(self, union: str) -> tuple[str, str]:
        self._match = []
        wanted = " and ".join([*self._waiting(self._sql, self._filter, self._given), *self._matching(self._filter)]) or "true"
        # All words here are our own; what the filter says goes as arguments.
        # Only the newest of all tables together: behind them another table may have jobs that this look does not reach.
        newest = f"select * from ({union}) as v order by v.id desc limit {SCAN}"  # noqa: S608
        found = f"select * from ({newest}) as u where {wanted} order by u.id desc limit "  # noqa: S608
        ids = f"select u.id from ({union}) as u order by u.id desc limit {SCAN}"  # noqa: S608
        seen = f"select count(*), (array_agg(u.id order by u.id))[1] from ({ids}) as u"  # noqa: S608
        return found, seen

    def _union(self, counts: Mapping[str, int] | None) -> str:
        """The tables that hold jobs of the filter's lanes, as they were just counted."""
        filter = self._filter
        self._begin, where = [], ["j.id < $1"]
        for column in _INDEXED:
            value = getattr(filter, column)
            if value is not None:
                self._begin.append(value)
                where.append(f"j.{column} = ${1 + len(self._begin)}")
        if filter.group is not None:
            self._begin.append(filter.group.fingerprint)
            where.append(f"j.state = 'dead' and j.fingerprint = ${1 + len(self._begin)}")
        if filter.state is State.RUNNING:
            where.append("j.running")
            if self._running is not None:
                self._begin.append(self._running)
                where.append(f"j.id = any (${1 + len(self._begin)}::uuid[])")
        elif filter.state in (State.DEAD, State.CANCELLED):
            where.append(f"j.state = '{filter.state}'")
        parts, by_lane = [], not self._begin and filter.argument is None and not self._by_tag
        found_at = self._found_at()
        for name in self._tables:
            places = (f"@{filter.state}",) if name == "all_failed" and filter.state else _PLACES[name]
            held = None if counts is None else sum(counts.get(place, 0) for place in places)
            if held == 0:
                continue
            words = where
            if by_lane and held is not None and held <= SORTED_UP_TO and name in _IN_LANES:
                # Few enough to be sorted: the index of lanes gives no order.
                self._begin = [self._lanes]
                words = [*where, self._sql[_IN_LANES[name]].format("$2")]
            asked = [" and ".join([*words, *place]).format(table=_TABLE_OF[name]) for place in found_at]
            parts += [f"({self._sql[name]} where {each} order by j.id desc limit {SCAN})" for each in asked]
        return " union all ".join(parts)

    def _found_at(self) -> list[list[str]]:
        """The places at which an argument may stand, each with an index of its own, or the index of tags of the table."""
        given = f"${2 + len(self._begin)}"
        if self._by_tag:
            self._begin.append(self._filter.tag)
            return [[self._sql["with_tag"].replace("{tag}", given)]]
        if self._filter.argument is None:
            return [[]]
        self._begin.append(self._filter.argument)
        return [[f"j.indexed is not null and j.indexed::jsonb ->> {place:d} = {given}"] for place in range(MAX_INDEXED)]

    def _waiting(self, sql: Mapping[str, str], filter: Filter, given: int | None) -> Iterator[str]:
        if filter.waiting is WaitsFor.RETRYING:
            yield "u.state = 'ready' and u.attempt > 0 and u.held is null"
        elif filter.waiting is WaitsFor.HELD:
            yield "u.state = 'ready' and u.held is not null"
        elif filter.waiting is WaitsFor.SCHEDULED:
            yield self._asked(sql["scheduled"], given)

    def _matching(self, filter: Filter) -> Iterator[str]:
        if filter.state is not None:
            yield self._asked("u.state = {}", filter.state.value)
        if self._lanes is not None:
            yield self._asked("u.lane = any({}::integer[])", self._lanes)
        if filter.since is not None:
            yield self._asked("u.enqueued_at >= {}", from_datetime(filter.since))
        if filter.until is not None:
            yield self._asked("u.enqueued_at < {}", from_datetime(filter.until))
        if filter.tag is not None:
            yield self._asked("u.tags::jsonb ? {}", filter.tag)

    def _asked(self, words: str, value: Any) -> str:
        self._match.append(value)
        return words.format(f"${1 + len(self._begin) + len(self._match)}")


def lanes_of(view: CatalogView, queue: str | None, task: str | None) -> list[int]:
    return [lane.id for lane in view.lanes.values() if queue in (None, lane.queue) and task in (None, lane.task)]
