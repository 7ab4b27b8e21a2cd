"""Every route behind a screen of the dashboard, on a store with many jobs: median and worst time of an answer.

    PYTHONPATH=. python benchmarks/routes.py sqlite --jobs 5000000
    PYTHONPATH=. python benchmarks/routes.py postgres --jobs 5000000
    PYTHONPATH=. python benchmarks/routes.py postgresql://localhost/hawser --jobs 1000000

`sqlite` and `postgres` are a file and a server of its own, removed at the end; else the URL of an empty store. Nine jobs in ten
are done, 30,000 are dead in six groups, the rest waits (`filling.py`). `--keep` takes a store that is filled already,
`--only-fill` ends behind the filling. The bar is 50 ms in the middle and 300 ms at the worst. `CPU` is what an answer took of the
processors, here and in the server of its own: on a busy machine that says more than the time that passed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from benchmarks.filling import fill

from hawser import Hawser
from hawser.lab.cluster import Cluster
from hawser.store import Store
from hawser.stores.postgres import PostgresStore

MEDIAN_BAR, WORST_BAR = 50.0, 300.0


def make_app(url: str) -> Hawser:
    app = Hawser(url)

    @app.task(queue="mail", index=["user"])
    async def send(user: int, text: str = "") -> None: ...

    @app.task(queue="images", redact=["key"])
    async def resize(picture: int, key: str = "") -> None: ...

    @app.task(queue="reports")
    async def report(day: int) -> None: ...

    return app


class Asked(NamedTuple):
    """A request that a screen makes; one with a body counts what an action would do."""

    path: str
    filter: dict[str, str] | None = None


def counted(group: str) -> list[Asked]:
    """Dry runs: what stands in a dialog before an action on all that match."""
    return [
        Asked("/dlq/requeue", {"group": group}),
        Asked("/dlq/requeue", {"task": "send"}),
        Asked("/dlq/discard", {}),
        Asked("/jobs/cancel", {"queue": "mail"}),
        Asked("/jobs/cancel", {"tag": "few"}),
    ]


def routes(dead: str, group: str, batch: str, operation: str) -> Iterator[str]:
    """What the screens ask for."""
    yield from (
        "/tasks/stats?minutes=1440",
        "/queues/mail/why?minutes=1440",
        "/queues/small/why?minutes=60",
        "/queues",
        "/readyz",
    )
    yield from ("/jobs?limit=1", "/jobs?limit=50&brief=1&tag=few", "/jobs?limit=50&brief=1&schedule=minutely")
    yield from ("/jobs/counts?tag=few", "/jobs/strip?tag=few", "/jobs/counts?schedule=minutely")
    yield from ("/schedules/minutely/past?count=50", "/schedules/minutely/ticks?count=100", f"/batches/{batch}")
    yield "/jobs?limit=50&brief=1&state=running&sort=started"
    yield from ("/overview?minutes=60", "/overview?minutes=1440", "/queues/mail/why?minutes=60", "/queues/mail/groups")
    yield from ("/jobs?limit=50&brief=1", "/jobs?limit=50&brief=1&state=dead", "/jobs?limit=50&brief=1&state=done,dead")
    yield from ("/jobs?limit=50&brief=1&task=resize&state=done", "/jobs?limit=20&brief=1&queue=images&state=running")
    yield from ("/jobs?limit=200&brief=1&state=running", "/jobs?limit=50&brief=1&state=running&worker=w1")
    yield from ("/jobs?limit=50&brief=1&argument=user%3D42", "/jobs?limit=50&brief=1&attempt_min=2")
    yield from ("/jobs?limit=50&brief=1&tag=none", "/jobs/counts?tag=none", "/jobs/strip?tag=none")
    yield from (
        "/jobs/counts",
        "/jobs/counts?task=send",
        "/jobs/counts?queue=images&task=resize",
        "/jobs/counts?argument=user%3D42",
    )
    yield from ("/jobs/strip", "/jobs/strip?task=send", "/jobs/strip?argument=user%3D42", "/history?minutes=1440&step=8")
    yield from (f"/jobs/{dead}", f"/jobs/{dead}/steps", f"/jobs/{dead}/output", f"/jobs?parent_id={dead}&limit=20&brief=1")
    yield from ("/dlq/groups", f"/dlq?group={group}&limit=50", "/operations", "/batches", "/tasks", "/tasks/stats?minutes=60")
    yield from (f"/audit?target={dead}&limit=10", "/batches?state=dead", "/batches?state=running", f"/operations/{operation}")
    yield from (f"/jobs?limit=50&brief=1&{which}" for which in ("key=one", "key=none", f"batch={batch}"))
    yield from ("/schedules", "/workers", "/admin/limits", "/admin/breakers", "/stats", "/system", "/me")


def cpu_ms(folder: Path | None) -> float:
    """CPU time so far: ours, and that of a server with its data in this folder."""
    spent = time.process_time() * 1000
    if folder is not None:
        first = (folder / "data" / "postmaster.pid").read_text().split()[0]
        for child in Path(f"/proc/{first}/task/{first}/children").read_text().split():
            spent += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1_000_000
    return spent


async def measure(app: Hawser, times: int, folder: Path | None) -> int:
    api = app.asgi(open=True, upkeep=False)
    api.screens = type(api.screens)(0.0)  # each look anew: what the first of many who look pays
    api.counted = type(api.counted)(0.0)
    missed = 0
    transport = httpx.ASGITransport(api, client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        began = time.monotonic()
        await client.get("/me")  # the first request starts the server's parts
        while not api.past.day.complete:
            await asyncio.sleep(0.1)
        print(f"a day of counts was read beside requests within {time.monotonic() - began:.1f} s")
        [one] = (await client.get("/dlq?limit=1&brief=1")).json()["jobs"]
        group = (await client.get("/dlq/groups")).json()["groups"][0]["id"]
        print("| route | median ms | worst ms | CPU ms | bytes |\n|---|---|---|---|---|")
        [batch, *_] = (await client.get("/batches?limit=1")).json()["batches"]
        operation = await operated(client)
        asked = [Asked(path) for path in routes(one["id"], group, batch["id"], operation)]
        for route, filter in [*asked, *counted(group)]:
            took, spent = [], []
            for _ in range(times):
                began, had = time.perf_counter(), cpu_ms(folder)
                if filter is None:
                    answer = await client.get(route)
                else:
                    answer = await client.post(route, json={"filter": filter, "dry_run": True})
                took.append((time.perf_counter() - began) * 1000)
                spent.append(cpu_ms(folder) - had)
                assert answer.status_code == 200, (route, answer.text)
            median, worst = statistics.median(took), max(took)
            over = median > MEDIAN_BAR or worst > WORST_BAR
            missed += over
            name = (
                route.replace(one["id"], "ID")
                .replace(group, "GROUP")
                .replace(batch["id"], "BATCH")
                .replace(operation, "OPERATION")
            )
            name += "" if filter is None else f" {', '.join(filter) or 'all'}"
            figures = f"{median:.1f} | {worst:.1f} | {statistics.median(spent):.1f} | {len(answer.content):,}"
            print(f"| `{name}` | {figures} |{' over' if over else ''}", flush=True)
    await api.stop()
    return missed


async def operated(client: httpx.AsyncClient) -> str:
    """An operation that found nothing to do."""
    body = {"filter": {"queue": "none"}}
    seen = (await client.post("/jobs/cancel", json={**body, "dry_run": True})).json()
    began = await client.post("/jobs/cancel", json={**body, "token": seen["token"]})
    return str(began.json()["id"])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="the store is filled already")
    parser.add_argument("--only-fill", action="store_true")
    given = parser.parse_args()
    with ExitStack() as ending:
        url, folder = url_of(given.store, ending)
        await run(given, url, folder)


def url_of(store: str, ending: ExitStack) -> tuple[str, Path | None]:
    if store == "postgres":
        settings: dict[str, object] = {"shared_buffers": "512MB", "max_wal_size": "8GB", "maintenance_work_mem": "256MB"}
        cluster = ending.enter_context(Cluster(settings=settings))
        return cluster.url, cluster.folder
    if store == "sqlite":
        return f"sqlite:///{ending.enter_context(tempfile.TemporaryDirectory())}/jobs.db", None
    return store, None


async def run(given: argparse.Namespace, url: str, folder: Path | None) -> None:
    app = make_app(url)
    store = await app.store()
    if not given.keep:
        began = time.monotonic()
        await fill(app, store, given.jobs, Path(urlsplit(url).path))
        print(f"{given.jobs:,} jobs made in {time.monotonic() - began:.0f} s, {await size(store, url):,} MB", flush=True)
    if not given.only_fill:
        print(f"load {os.getloadavg()[0]:.1f}")
        missed = await measure(app, given.times, folder)
        print(f"{missed} routes over the bar of {MEDIAN_BAR:.0f} and {WORST_BAR:.0f} ms")
    await app.aclose()


async def size(store: Store, url: str) -> int:
    """Megabytes of the tables or of the file."""
    if not isinstance(store, PostgresStore):
        return Path(urlsplit(url).path).stat().st_size // 1_000_000
    sql = """select sum(pg_total_relation_size(oid)) / 1000000 from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'r'"""
    return int(await store.server.connection("read").value(sql, store.address.schema))


if __name__ == "__main__":
    asyncio.run(main())
