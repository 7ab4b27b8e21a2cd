"""The machine of each store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

from hypothesis.stateful import invariant

from hawser.store import Store
from hawser.stores import make_store
from hawser.stores.postgres import PostgresStore, frontier
from hawser.stores.postgres.server import in_schema
from hawser.stores.redis.address import LaneKind
from tests.model.breaking import BreakerMachine
from tests.model.flows import FlowMachine
from tests.model.groups import GroupMachine
from tests.model.kept import KeptMachine
from tests.model.played import Played, same
from tests.model.put_off import PutOffMachine
from tests.model.schedules import ScheduledMachine
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import kinds as redis_kinds
from tests.redis_servers import own_store, shared


class OnMemory(Played):
    """The memory store: the object is the data, so a restart is a close and an open of the same one."""

    def new_store(self) -> Store:
        return make_store("memory://", clock=self.clock)

    def reopen(self) -> None:
        self.run(self.store.open())


class OnJournal(Played):
    """The memory store with a journal: a restart is a new handle on the same folder. Every second one follows a kill, after which
    there is no image of the end: the calls are made again."""

    def new_store(self) -> Store:
        self.folder = Path(tempfile.mkdtemp(prefix="hawser-model-", dir=_fast_folder()))
        self.restarts = 0
        return self.handle()

    def handle(self) -> Store:
        return make_store(f"memory://?journal={self.folder}", clock=self.clock)

    def stop(self) -> None:
        self.restarts += 1
        if self.restarts % 2:
            killed(self.store)
        else:
            super().stop()

    def reopen(self) -> None:
        self.store = self.handle()
        self.run(self.store.open())

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


def killed(store: Any) -> None:
    """Let go of a journal as the end of its process does: nothing more is written."""
    store._log.close()
    store._folder.let_go()
    store._log = None


class OnSqlite(Played):
    """The SQLite store: a restart is a new handle on the same file, and counts its claims anew."""

    def new_store(self) -> Store:
        self.folder = Path(tempfile.mkdtemp(prefix="hawser-model-", dir=_fast_folder()))
        return self.handle()

    def handle(self) -> Store:
        return make_store(f"sqlite:///{self.folder / 'jobs.db'}", clock=self.clock)

    def reopen(self) -> None:
        self.store = self.handle()
        self.model.claims = 0
        self.run(self.store.open())

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


BOOKS = """
select l.kind, l.name, '' as of_group,
    m.running - (select coalesce(sum(f.runs), 0) from hawser.freed as f where f.meter = l.id),
    (select count(*) from hawser.job as j where j.running and l.id = any (j.meters))
from hawser.limited as l
cross join lateral (select m.running from hawser.meter as m where m.id = l.id order by m.epoch desc limit 1) as m
where l.running is not null and not l.per_group
union all
select l.kind, l.name, n.name,
    coalesce(m.running, 0)
        - coalesce((select sum(f.runs) from hawser.freed as f where f.meter = l.id and f.group_name = n.name), 0),
    (select count(*) from hawser.job as j where j.running and l.id = any (j.meters) and j.group_name = n.name)
from hawser.limited as l cross join lateral (
    select m.group_name as name from hawser.group_meter as m where m.limit_id = l.id
    union select f.group_name from hawser.freed as f where f.meter = l.id and f.group_name is not null
    union select j.group_name from hawser.job as j where j.running and l.id = any (j.meters) and j.group_name is not null
) as n left join lateral (
    select m.running from hawser.group_meter as m where m.limit_id = l.id and m.group_name = n.name
    order by m.version desc limit 1
) as m on true
where l.running is not null and l.per_group
"""
"""What the newest meter of each limit counts, without what has ended and is not added up; and the running rows that name it."""


class OnPostgres(Played):
    """The PostgreSQL store: a restart is a new handle on the same schema, and counts its claims anew."""

    version = versions()[-1]

    def new_store(self) -> Store:
        # Set back and forward again between two claims, the clock fools a frontier, and a sweep has to find what is behind it.
        # That is not what this machine asks about: without a steady clock there are no frontiers.
        self.lag = mock.patch.object(frontier, "LAG", frontier.LAG if self.steady else 2**62)
        self.lag.start()
        self.url = with_schema(server(self.version), f"{own_schema()}_model")
        self.run(emptied(self.url))
        return self.handle()

    def handle(self) -> Store:
        return make_store(self.url, clock=self.clock)

    def reopen(self) -> None:
        self.store = self.handle()
        self.model.claims = 0
        self.run(self.store.open())

    @invariant()
    def meters_count_the_rows_that_run(self) -> None:
        """A prune counts anew, so what claims do would not show a drift for long, and of a limit that does not bind never."""
        for kind, name, group, counted, runs in self.run(self.books()):
            same(f"what the meter of {kind} {name} {group} counts", counted, runs)

    async def books(self) -> Sequence[Any]:
        own = cast("PostgresStore", self.store)
        return await own.server.connection("read").rows(in_schema(BOOKS, own.address.schema), writing=False)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.lag.stop()


class OnOldPostgres(OnPostgres):
    """The same on the oldest server that is found."""

    version = versions()[0]


class OnRedis(Played):
    """The Redis store: a restart is a new handle on the same namespace, and counts its claims anew."""

    kind = redis_kinds()[0]
    lanes: LaneKind = "lists"

    def new_store(self) -> Store:
        self.url = own_store(shared(self.kind), self.lanes)
        return self.handle()

    def handle(self) -> Store:
        return make_store(self.url, clock=self.clock)

    def reopen(self) -> None:
        self.store = self.handle()
        self.model.claims = 0
        self.run(self.store.open())


class OnStreams(OnRedis):
    """The same with lanes in streams."""

    lanes = "streams"


class OnOtherRedis(OnRedis):
    """The same on the other server that is found."""

    kind = redis_kinds()[-1]


class OnOtherStreams(OnOtherRedis):
    """The same with lanes in streams."""

    lanes = "streams"


def _fast_folder() -> str | None:
    """Memory, where there is some: the model asks what is written, not whether it survives a power cut."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


PLACES: dict[str, type[Played]] = {"memory": OnMemory, "journal": OnJournal, "sqlite": OnSqlite, "postgres": OnPostgres}
if OnOldPostgres.version != OnPostgres.version:
    PLACES["postgres-old"] = OnOldPostgres
PLACES |= {"redis": OnRedis, "redis-streams": OnStreams}
if OnOtherRedis.kind != OnRedis.kind:
    PLACES |= {"redis-other": OnOtherRedis, "redis-other-streams": OnOtherStreams}


def on_each(what: type[Played]) -> dict[str, type[Played]]:
    """The machine of each store that plays this."""
    return {name: type(f"{what.__name__}{place.__name__}", (place, what), {}) for name, place in PLACES.items()}


MACHINES = on_each(ScheduledMachine)
FLOWS = on_each(FlowMachine)
GROUPS = on_each(GroupMachine)
KEPT = on_each(KeptMachine)
BREAKERS = on_each(BreakerMachine)
PUT_OFF = on_each(PutOffMachine)
