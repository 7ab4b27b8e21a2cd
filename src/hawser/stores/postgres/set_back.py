"""What was due stays due when the server's clock is set back.

A job is due by its `run_at`. After the clock was set back by an hour, a backlog that was due lies an hour ahead, and would wait
for it while new jobs run. So the database keeps the highest time that any process has seen, and how often that was found to be
too high. Of all processes that find it so, one makes what was due by then due now, in the statement that raises the number. Jobs
that were due when they were enqueued need no such knowledge: they are due whenever they are seen to lie ahead, some at a time.
"""

from __future__ import annotations

from typing import Final

from hawser.clock import to_us
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, Kind, LaneCatalog
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server

TIME_NOTE_EVERY_US: Final = to_us(1.0)
"""How old the highest time in the database may be."""

SOME: Final = 2_000
"""Jobs that one call makes due: it is in the way of a claim."""

ALWAYS_DUE: Final = (Kind.FRESH, Kind.LATE, Kind.FRESH + GROUPED_KIND, Kind.LATE + GROUPED_KIND)
WAITED: Final = (Kind.TIMED, Kind.RETRYING, Kind.TIMED + GROUPED_KIND, Kind.RETRYING + GROUPED_KIND)


class SetBack:
    """The highest time of the store, as one process sees to it."""

    def __init__(self, server: Server, catalog: LaneCatalog) -> None:
        self._server = server
        self._catalog = catalog
        self._seen = 0
        self._steps = -1
        self._unfinished = False

    @property
    def noticed(self) -> bool:
        """Whether the clock may have been set back since `mend` was called; at first it may."""
        return self._server.set_back > self._seen

    @property
    def wanted(self) -> bool:
        """Whether `mend` has something to do."""
        return self._unfinished or self.noticed

    async def mend(self, connection: ManagedConnection) -> int:
        """Make due what was due before, as far as that is not done; note the time. Gives the store's time."""
        server = self._server
        now, latest, steps = await self._look(connection)
        seen = server.set_back
        if latest is None or now - latest > TIME_NOTE_EVERY_US:
            await connection.rows(server.sql["note_latest"], server.given, TIME_NOTE_EVERY_US)
        # What this process saw counts until a process has handled it.
        highest = max(latest or 0, server.before if self.noticed and steps == self._steps else 0)
        if not self.wanted and now >= highest:
            self._steps = steps
            return now
        lanes = list((await self._catalog.read(connection)).lanes)
        if now < highest:
            which = [lane for lane in lanes for _ in WAITED], [kind for _ in lanes for kind in WAITED]
            await connection.rows(server.sql["make_due"], server.given, steps, *which, highest)
            now, _, steps = await self._look(connection)
        which = [lane for lane in lanes for _ in ALWAYS_DUE], [kind for _ in lanes for kind in ALWAYS_DUE]
        made = await connection.value(server.sql["make_fresh_due"], server.given, *which, SOME)
        await connection.rows(server.sql["look_at_all_groups"])
        self._unfinished = made >= SOME
        self._steps, self._seen = steps, seen
        return now

    async def _look(self, connection: ManagedConnection) -> tuple[int, int | None, int]:
        [(now, value)] = await connection.rows(self._server.sql["latest"], self._server.given, writing=False)
        self._server.saw(now)
        latest, steps = map(int, value.split(":")) if value else (None, 0)
        return now, latest, steps
