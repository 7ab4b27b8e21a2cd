"""`hawser scheduler`: fire schedules, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Literal

import click

from hawser.app import Hawser
from hawser.cli.opened_app import must_exist
from hawser.client.app_loader import find_app
from hawser.cycle import Cycle
from hawser.errors import ConfigError
from hawser.telemetry.logs import LogOptions, configure
from hawser.upkeep.scheduler import Declarer, Scheduler
from hawser.worker.loop import run_loop
from hawser.worker.signals import stop_on_signals, tell_stacks


@click.command()
@click.argument("app", required=False)
@click.option("--store", "url", metavar="URL", help="The store, if it is not the app's own.  [default: $HAWSER_STORE]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
def scheduler(
    app: str | None,
    url: str | None,
    log_level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["plain", "json"],
) -> None:
    """Fire schedules, and nothing else.

    Those of the store, until SIGTERM or Ctrl-C; with APP, it also declares those of the app. Every `hawser worker` does the
    same beside its jobs: this one is for schedules that go on while no worker runs. Any number may run at once, each tick
    makes one job.
    """
    configure(LogOptions(level=log_level, format=log_format))
    found = Hawser(url) if app is None else find_app(app)
    if app is None:
        must_exist(found, url)
    elif url is not None:
        found.use_store(url)
    run_loop(_run(found, declares=app is not None))


async def _run(app: Hawser, *, declares: bool) -> None:
    definitions = app.declared()
    store = await app.store()
    if getattr(store, "inline", False):
        raise ConfigError("store: memory:// lives inside one process and cannot be reached from here; name another store")
    stop = asyncio.Event()
    stop_on_signals(stop)
    tell_stacks()
    cycles = [Cycle("scheduler", Scheduler(store).turn)]
    if declares:
        cycles.append(Cycle("declarer", Declarer(store, definitions).turn))
    for cycle in cycles:
        cycle.start()
    await stop.wait()
    for cycle in cycles:
        await cycle.stop()
    await app.aclose()
