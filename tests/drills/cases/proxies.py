"""What stands between a caller and us: a reverse proxy before the server, a network that cuts connections before the database."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from hawser.errors import StoreError
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.wire import Wire
from hawser.lab.cluster import Cluster
from tests.api.processes import served
from tests.api.test_proxy import BARE, BARE_OF_TODAY, free_port, nginx
from tests.drills.case import Case, Seen
from tests.worker.processes import eventually, fleet, settled
from tests.worker.tasks import app, nap

FAULTS = 20
JOBS = 200


def _bare_proxy(folder: Path) -> Seen:
    """Everything that a stranger may ask for through a proxy that names no caller."""
    asked = [
        ("GET", "/stats"),
        ("GET", "/jobs"),
        ("POST", "/jobs"),
        ("GET", "/audit"),
        ("POST", "/dlq/requeue"),
        ("GET", "/events"),
    ]
    with served(folder) as server:
        users = ("user www-data;", "user root;") if os.geteuid() == 0 else ("",)
        health, codes = set[int](), list[int]()
        for bare in (BARE, BARE_OF_TODAY):
            for user in users:
                port = free_port()
                with nginx(folder, bare.format(port=port, to=server.port), port, user):
                    through = f"http://127.0.0.1:{port}"
                    health.add(httpx.get(f"{through}/healthz").status_code)
                    codes += [httpx.request(method, f"{through}{path}", timeout=10).status_code for method, path in asked]
        own = httpx.get(f"{server.url}/stats").json()
    text = f"/healthz {health}; {len(codes)} other requests without a key: {sorted(set(codes))}; {own['ready']} jobs accepted"
    return Seen(held=health == {200} and set(codes) == {401} and own["ready"] == 0, text=text)


def _cut_connections(folder: Path) -> Seen:
    """A worker and a producer reach the database only through a wire that cuts, swallows and loses replies."""
    with Cluster(settings={"max_connections": 200}) as cluster, Wire(cluster.port) as wire, fleet(folder) as units:
        through = cluster.url.replace(f":{cluster.port}", f":{wire.port}") + "&timeout=5&connect_timeout=5"
        units.url = units.environ["HAWSER_STORE"] = through
        app.use_store(through)
        worker = units.start("--lease", "5", "--slots", "16")

        def black_hole(_: random.Random) -> None:
            wire.swallow()
            time.sleep(1)
            wire.heal()

        faults = {"cut": (2, lambda _: wire.cut()), "lost reply": (2, lambda _: wire.lose_reply()), "black hole": (1, black_hole)}
        accepted, unknown = set[str](), 0
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(Plan(faults, seed=7, every=(0.1, 0.4)).run, times=FAULTS)
            while not playing.done() or len(accepted) < JOBS:
                try:
                    accepted |= {handle.id for handle in app.enqueue_many([nap.job(0.01) for _ in range(4)])}
                except StoreError:
                    unknown += 1
                time.sleep(0.05)
            made = playing.result()
        wire.heal()
        eventually(lambda: settled(app), 60, lambda: units.log(worker))
        found = {job.id: job for job in app.find(limit=1000).jobs}
        app.close()
    lost, states = accepted - found.keys(), {job.state.value for job in found.values()}
    text = (
        f"{made}: {len(accepted)} jobs accepted, {unknown} calls with an unknown or refused answer, {len(lost)} lost, "
        f"states {sorted(states)}, most attempts {max(job.attempt for job in found.values())}"
    )
    return Seen(held=not lost and states == {"done"}, text=text)


CASES = [
    Case(
        "bare-reverse-proxy",
        "any",
        "nginx with nothing but proxy_pass before a server without keys: of another user and of ours, HTTP/1.0 and 1.1",
        "no caller that comes through it may do anything",
        _bare_proxy,
    ),
    Case(
        "cut-connections",
        "postgres",
        f"{FAULTS} times the connections of a worker and a producer are cut, swallowed, or lose a reply",
        "every accepted job is done, the worker goes on by itself",
        _cut_connections,
    ),
]
