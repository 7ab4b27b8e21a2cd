"""`hawser demo`: a small shop at work, to look at."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from hawser.cli import show
from hawser.cli.format import clean, plural
from hawser.demo import app, some_work
from hawser.errors import install
from hawser.job import Job, State
from hawser.lab.store_under_test import lent
from hawser.store import QueueStats
from hawser.stores.url import without_password

DEMO_QUEUES: Final = ("payments", "mail", "images", "webhooks")
DEMO_COLUMNS: Final = ("queue", "waiting", "running", "retrying", "done", "dead", "done/s")
ROUND: Final = 0.2
"""Seconds between two rounds: the shop gets some work, and the figures are read."""
LINE_EVERY: Final = 2.0
LINE_BESIDE_THE_PAGE_EVERY: Final = 10.0
"""Seconds between two lines where there is no table; fewer lines where the dashboard shows the same."""
SERVER_STARTS_WITHIN: Final = 30.0

Draw = Callable[[Mapping[str, QueueStats], list[Job], float], None]


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 3600), help="End by itself after so long. [default: at Ctrl-C]")
@click.option(
    "--store",
    metavar="URL",
    help="Another store, or sqlite, postgres, redis: a new one, removed at the end. [default: sqlite]",
)
@click.option("--no-open", is_flag=True, help="Only say the address of the dashboard; open no browser.")
@click.option("--terminal", is_flag=True, help="Show the figures in the terminal; serve no dashboard.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the dashboard. [default: a free one]")
def demo(seconds: float | None, store: str | None, no_open: bool, terminal: bool, port: int) -> None:
    """Watch a small shop at work: mails, pictures, payments that fail at times, a webhook that always does.

    A worker process runs the jobs, a server shows the dashboard on this machine, and this process enqueues some work five times a
    second. At the end it stops enqueueing, lets the worker finish, and sums up.
    """
    with tempfile.TemporaryDirectory(prefix="hawser-demo-") as folder, lent(store, Path(folder), "demo") as url:
        os.environ["HAWSER_STORE"] = url
        app.use_store(url)
        asyncio.run(_try_store())
        with ExitStack() as parts:
            arguments = ("hawser.demo:app", "--queues", ",".join(DEMO_QUEUES), "--slots", "32")
            worker = parts.enter_context(_started(Path(folder), "worker", *arguments))
            page = not terminal and _has_server()
            if page:
                parts.enter_context(_started(Path(folder), "serve", "hawser.demo:app", "--port", str(port)))
                _show_page(_address(Path(folder) / "serve.log"), opens=not no_open)
            asyncio.run(_run(worker, seconds, Path(folder), store if url == store else None, page=page))


async def _try_store() -> None:
    """Open the store once. An error is shown here at once, and not found in the log of a process."""
    await app.aopen()
    await app.aclose()


def _has_server() -> bool:
    if find_spec("uvicorn") is not None and find_spec("httptools") is not None:
        return True
    show.say(f"There is no dashboard without the server's packages; {install('server')}.")
    return False


def _address(log: Path) -> str:
    """Where the server listens, as its log says."""
    deadline = time.monotonic() + SERVER_STARTS_WITHIN
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if found := re.search(r"serving .* on (http://[^\s,]+)", text):
            return found[1]
        if "Error" in text:
            break
        time.sleep(0.05)
    raise click.ClickException(f"the server did not start: {clean(log.read_text(errors='replace')[-2000:])}")


def _show_page(address: str, *, opens: bool) -> None:
    show.say(f"The dashboard: {address}/ui/ (Ctrl-C closes the shop)")
    has_screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if opens and has_screen and show.on_terminal():
        webbrowser.open(f"{address}/ui/")


@contextmanager
def _started(folder: Path, command: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `hawser` command, as a user would start it, with its log in a file."""
    with (folder / f"{command}.log").open("wb") as log:
        args = [sys.executable, "-m", "hawser.cli", command, *arguments]
        # A session of its own: Ctrl-C is for us, and we end it in order.
        process = subprocess.Popen(args, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def _run(worker: subprocess.Popen[bytes], seconds: float | None, folder: Path, given: str | None, *, page: bool) -> None:
    await app.aopen()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    began = time.monotonic()
    rounds, accepted = 0, set[str]()
    with _screen(page=page) as draw:
        while not stop.is_set() and (seconds is None or time.monotonic() - began < seconds):
            rounds += 1
            accepted |= {handle.id for handle in await app.aenqueue_many(some_work(rounds))}
            draw(await _figures(), await _dead(), time.monotonic() - began)
            if worker.poll() is not None:
                raise click.ClickException(f"the worker ended: {clean((folder / 'worker.log').read_text()[-2000:])}")
            try:
                async with asyncio.timeout(ROUND):
                    await stop.wait()
            except TimeoutError:
                pass
        await _close_the_shop()
        deadline = time.monotonic() + 30
        while await _left() and time.monotonic() < deadline:
            draw(await _figures(), await _dead(), time.monotonic() - began)
            await asyncio.sleep(ROUND)
    await _sum_up(accepted, time.monotonic() - began, given)
    await app.aclose()


async def _figures() -> dict[str, QueueStats]:
    return {queue: await app.astats(queue) for queue in DEMO_QUEUES}


async def _dead() -> list[Job]:
    return (await app.afind(state=State.DEAD, limit=3)).jobs


async def _left() -> int:
    stats = await app.astats()
    return stats.ready + stats.scheduled + stats.retrying + stats.held + stats.running


async def _close_the_shop() -> None:
    """No more ticks, so that nothing is left over."""
    for schedule in await app.schedules.alist():
        await app.schedules.apause(schedule.name, reason="the shop closes")


async def _sum_up(accepted: set[str], seconds: float, given: str | None) -> None:
    """Look for every job that was accepted, and for those that followed from them."""
    found, after = dict[str, Job](), None
    while True:
        page = await app.afind(after=after, limit=1000)
        found |= {job.id: job for job in page.jobs}
        after = page.next
        if after is None:
            break
    states = Counter(job.state for job in found.values())
    followed = sum(job.parent_id in found for job in found.values())
    click.echo()
    show.say(f"Accepted {plural(len(accepted), 'job')} in {seconds:.0f} s; {plural(followed, 'receipt')} followed from them.")
    for schedule in await app.schedules.alist():
        ticks = {job.tick for job in found.values() if job.schedule == schedule.name}
        made = f"{plural(schedule.fired, 'job')} for {plural(len(ticks), 'tick')}"
        show.say(f"The schedule {schedule.name} ({schedule.rule.words.lower()}) made {made}.")
    left = states[State.READY] + states[State.RUNNING]
    missing = len(accepted - found.keys())
    letters = plural(states[State.DEAD], "dead letter")
    show.say(f"Of all these {states[State.DONE]:,} done, {letters}, {left:,} left, {missing:,} missing.")
    for job in await _dead():
        show.say(f"  dead: {job.task} after {plural(job.attempt, 'attempt')}: {clean(str(job.errors[-1]))}")
    if given is None:
        show.say("The demo's store was removed. Write your own app: see the README.")
    else:
        url = without_password(given)
        show.say(
            f"The store {url} was kept, with the demo's jobs and its schedule (paused). Look into it: hawser dlq --store {url}"
        )


class Speed:
    """Jobs done a second, over the last few seconds: the store's own rates are over five minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque(maxlen=int(3 / ROUND))

    def of(self, figures: Mapping[str, QueueStats], age: float) -> dict[str, float]:
        self._seen.append((age, {queue: stats.done for queue, stats in figures.items()}))
        (then, before), (now, after) = self._seen[0], self._seen[-1]
        return {queue: (after[queue] - before[queue]) / (now - then) if now > then else 0.0 for queue in after}


def _rows(figures: Mapping[str, QueueStats], speed: Mapping[str, float]) -> list[list[str]]:
    return [
        [queue, str(s.ready + s.scheduled), str(s.running), str(s.retrying), str(s.done), str(s.dead), f"{speed[queue]:.1f}"]
        for queue, s in figures.items()
    ]


@contextmanager
def _screen(*, page: bool) -> Iterator[Draw]:
    """A live table on a terminal; now and then a line elsewhere, and beside the dashboard."""
    if page or not show.on_terminal():
        last, every = 0.0, LINE_BESIDE_THE_PAGE_EVERY if page else LINE_EVERY

        def line(figures: Mapping[str, QueueStats], dead: list[Job], age: float) -> None:  # noqa: ARG001  # one shape for both
            nonlocal last
            if age - last >= every or not last:
                last = age
                done, waiting = sum(s.done for s in figures.values()), sum(s.ready + s.retrying for s in figures.values())
                click.echo(f"{age:5.1f} s: {done} done, {waiting} waiting, {sum(s.dead for s in figures.values())} dead")

        yield line
        return
    from rich.console import Group  # noqa: PLC0415  # slow to import, and only for a terminal
    from rich.live import Live  # noqa: PLC0415  # as above
    from rich.table import Table  # noqa: PLC0415  # as above
    from rich.text import Text  # noqa: PLC0415  # as above

    speed = Speed()
    with Live(transient=False, refresh_per_second=5) as live:

        def table(figures: Mapping[str, QueueStats], dead: list[Job], age: float) -> None:
            grid = Table(title=f"A small shop, open for {age:.0f} s (Ctrl-C closes it)", title_justify="left")
            for column in DEMO_COLUMNS:
                grid.add_column(column, justify="left" if column == "queue" else "right")
            for row in _rows(figures, speed.of(figures, age)):
                grid.add_row(*row)
            letters = [Text(f"dead: {job.task}: {clean(str(job.errors[-1]))}", style="red") for job in dead if job.errors]
            live.update(Group(grid, *letters))

        yield table
