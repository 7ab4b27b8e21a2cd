"""A rolling deploy under flows that sleep and wait: one step has another version now, and what one came to another type."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hawser import Hawser, Job, State
from hawser.lab.cluster import Cluster
from hawser.lab.redis_server import RedisServer
from tests.drills.case import Case, Seen
from tests.drills.cases.rollout import within
from tests.worker.processes import ROOT, group_of

RELEASES = {
    "old": ("", "None", "{'cents': number}"),
    "new": ("version=2", "Charge", "{'cents': number, 'currency': 'EUR'}"),
    "mended": ("version=2", "AnyCharge", "{'cents': number, 'currency': 'EUR'}"),
}
"""The version of the step `mail`, the type of what `charge` came to, and what it comes to."""

APP = """
import os

import msgspec

from hawser import Context, Fixed, Hawser

app = Hawser()


class Charge(msgspec.Struct):
    cents: int
    currency: str


class AnyCharge(msgspec.Struct):
    cents: int
    currency: str = "EUR"


async def effect(ctx, name, value):
    with open(os.environ["DRILL_SINK"], "a") as file:
        file.write(ctx.key(name) + "\\n")
    return value


async def parked(ctx, number, sleeps):
    if sleeps:
        await ctx.sleep("cool off", {seconds})
    else:
        await ctx.wait_for(f"packed:{{number}}", timeout=600)


@app.task(max_attempts=3, backoff=Fixed(every=0.2))
async def order(ctx: Context, number: int, sleeps: bool) -> str:
    await ctx.step("charge", lambda: effect(ctx, "charge", number))
    await parked(ctx, number, sleeps)
    await ctx.step("mail", lambda: effect(ctx, "mail", "sent"), {version})
    return "{release}"


@app.task(max_attempts=3, backoff=Fixed(every=0.2))
async def invoice(ctx: Context, number: int, sleeps: bool) -> str:
    await ctx.step("charge", lambda: effect(ctx, "charge", {value}), into={into})
    await parked(ctx, number, sleeps)
    return "{release}"
"""


class Deploy:
    """Workers of several releases on one store, and what their handlers did elsewhere."""

    def __init__(self, folder: Path, url: str, seconds: float) -> None:
        self._folder = folder
        self._sink = folder / "sink"
        self._sink.touch()
        self._environ = {**os.environ, "HAWSER_STORE": url, "DRILL_SINK": str(self._sink)}
        self._started: list[subprocess.Popen[bytes]] = []
        for release, (version, into, value) in RELEASES.items():
            text = APP.format(release=release, version=version, into=into, value=value, seconds=seconds)
            (folder / f"{release}.py").write_text(text)
        scope: dict[str, Any] = {}
        exec((folder / "old.py").read_text(), scope)  # the same tasks here
        self.app: Hawser = scope["app"]
        self.app.use_store(url)

    def start(self, release: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"log-{release}-{len(self._started)}"
        command = [sys.executable, "-m", "hawser.cli", "worker", f"{self._folder}/{release}.py:app", "--slots", "16"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=self._environ, stdout=out, stderr=out, start_new_session=True)
        self._started.append(process)
        assert within(60, lambda: "is ready" in log.read_text()), log.read_text()
        return process

    def effects(self) -> Counter[str]:
        """By key."""
        return Counter(self._sink.read_text().split())

    def end(self) -> None:
        self.app.close()
        for process in self._started:
            for pid in group_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait(30)


def left(app: Hawser) -> int:
    found = app.stats()
    return found.ready + found.scheduled + found.retrying + found.running + found.held


def changed_steps(folder: Path, store: str, flows: int = 1_000, seconds: float = 30.0) -> Seen:
    """Half of the flows sleep, half wait for an event; of each half every second one has a step whose type is another now."""
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/jobs.db"
        if store == "postgres":
            url = stack.enter_context(Cluster()).url
        elif store == "redis":
            url = stack.enter_context(RedisServer()).url
        deploy = Deploy(folder, url, seconds)
        stack.callback(deploy.end)
        app = deploy.app
        app.open()
        old = deploy.start("old")
        made = enqueued(app, range(flows))
        parked = within(60, lambda: app.stats().ready + app.stats().running == 0)
        # The first that is told goes on while there is no other release, however slowly the new one starts.
        app.emit("packed:1", 1)
        parked = parked and within(60, lambda: app.stats().done >= 1)
        asleep, waiting = app.stats().scheduled, app.stats().held
        new = [deploy.start("new")]
        # Both releases take flows from here on: those of before, and some that are new.
        made += enqueued(app, range(flows, flows + flows // 5))
        for number in range(3, flows + flows // 5, 2):
            app.emit(f"packed:{number}", number)
        within(seconds / 2, lambda: app.stats().done > flows // 4)
        old.send_signal(signal.SIGTERM)
        old.wait(60)
        ended = within(120, lambda: left(app) == 0)
        first = [app.get(id) for id in made]
        # The deploy is mended: the type takes the old form as well, and what died is replayed.
        new[0].send_signal(signal.SIGTERM)
        new[0].wait(60)
        deploy.start("mended")
        dead = [job for job in first if job.state is State.DEAD]
        for job in dead:
            app.requeue(job.id)
        mended = within(60, lambda: left(app) == 0)
        last = [app.get(id) for id in made]
        return judged(deploy, first, last, f"{asleep} asleep and {waiting} waiting at the deploy", parked and ended and mended)


def judged(deploy: Deploy, first: list[Job], last: list[Job], at_the_deploy: str, in_time: bool) -> Seen:
    dead = [job for job in first if job.state is State.DEAD]
    named = [job for job in dead if is_named(job)]
    by = Counter(str(job.result) for job in first if job.state is State.DONE)
    effects = deploy.effects()
    twice = sum(times - 1 for times in effects.values())
    wanted = {f"{job.id}:charge" for job in last} | {f"{job.id}:mail" for job in last if job.task == "order"}
    missing = len(wanted - effects.keys()) + len(effects.keys() - wanted)
    not_done = sum(job.state is not State.DONE for job in last)
    good = in_time and not twice and not missing and not not_done and len(named) == len(dead)
    held = good and bool(dead) and by["old"] > 0 and by["new"] > 0 and all(job.task == "invoice" for job in dead)
    text = (
        f"{len(first)} flows, {at_the_deploy}; {by['old']} ended by the old release and {by['new']} by the new, {len(dead)} dead "
        f"whose kept value no longer fits, {len(named)} of them named; all done after a replay on a mended release: "
        f"{not not_done}; effects made twice {twice}, missing {missing}"
    )
    return Seen(held, text)


def is_named(job: Job) -> bool:
    error = str(job.errors[-1])
    return all(part in error for part in ("StepMismatch: step 'charge'", "currency", "cents", "version="))


def enqueued(app: Hawser, numbers: range) -> list[str]:
    tasks: list[Any] = ["order", "invoice"]
    return [app.enqueue(tasks[number // 2 % 2], {"number": number, "sleeps": number % 2 == 0}).id for number in numbers]


CASES = [
    Case(
        f"changed-steps-{store}",
        store,
        "a rolling deploy with a changed step and a changed type, old and new workers at once, in the middle of 1,000 flows",
        "nothing lost, nothing charged twice, what no longer fits is named, and a replay goes on",
        lambda folder, store=store: changed_steps(folder, store),  # type: ignore[misc]
    )
    for store in ("sqlite", "postgres", "redis")
]
