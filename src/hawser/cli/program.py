"""The program: every command by name. Each stands in a module of its own, imported only when it is asked for."""

from __future__ import annotations

import os
import sys
import threading
from io import TextIOWrapper
from typing import Final, NoReturn

import click

from hawser import __version__
from hawser.cli.group import Lazy, Root, refused

COMMANDS: Final = {
    "demo": Lazy("hawser.cli.demo:demo", "Watch a small shop at work."),
    "worker": Lazy("hawser.cli.worker:worker", "Run an app's jobs."),
    "serve": Lazy("hawser.cli.serve:serve", "Serve an app's HTTP API."),
    "keys": Lazy("hawser.cli.keys:keys", "Create, list and revoke API keys."),
    "enqueue": Lazy("hawser.cli.enqueue:enqueue", "Add a job of one of the app's tasks."),
    "emit": Lazy("hawser.cli.emit:emit", "Say that an event has come: jobs that wait for it go on."),
    "stats": Lazy("hawser.cli.stats:stats", "Show a queue, or all of them, in figures."),
    "top": Lazy("hawser.cli.top:top", "Watch queues, workers and dead letters."),
    "jobs": Lazy("hawser.cli.jobs:jobs", "List, show, explain, cancel, change and retry jobs."),
    "steps": Lazy("hawser.cli.steps:steps", "List what the runs of a job have achieved."),
    "rewind": Lazy("hawser.cli.rewind:rewind", "Run a job again from behind one of its steps."),
    "batches": Lazy("hawser.cli.batches:batches", "List, show, close and cancel batches."),
    "dlq": Lazy("hawser.cli.dlq:dlq", "List, show, replay and discard dead jobs."),
    "queues": Lazy("hawser.cli.queues:queues", "List, pause, resume and set queues."),
    "tasks": Lazy("hawser.cli.tasks:tasks", "List, pause and resume tasks."),
    "limits": Lazy("hawser.cli.limits:limits", "List, set and clear the limits of queues and tasks, over all workers."),
    "breakers": Lazy("hawser.cli.breakers:breakers", "List, open and close the breakers of tasks."),
    "schedules": Lazy("hawser.cli.schedules:schedules", "List, show, run, skip, pause, resume and remove schedules."),
    "scheduler": Lazy("hawser.cli.scheduler:scheduler", "Fire schedules, and nothing else."),
    "workers": Lazy("hawser.cli.workers:workers", "List the workers that live."),
    "audit": Lazy("hawser.cli.audit:audit", "List what operators did."),
    "bench": Lazy("hawser.cli.bench:bench", "Measure a store."),
    "lab": Lazy("hawser.cli.lab:lab", "Put a store to the proof: load, faults, a verdict."),
    "doctor": Lazy("hawser.cli.doctor:doctor", "Say what is wrong here, and what to do."),
    "completion": Lazy("hawser.cli.completion:completion", "Print the completion script of a shell."),
    "migrate": Lazy("hawser.cli.migrate:migrate", "Bring a store's schema to this version."),
}
"""Every command: where it stands and what `hawser --help` says of it. A further one is one line here."""


@click.group(
    cls=Root,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="The store is --store URL, else that of --app, else $HAWSER_STORE, else hawser.db in this folder.",
)
@click.version_option(__version__, message="hawser %(version)s")
@click.option("--debug", is_flag=True, envvar="HAWSER_DEBUG", show_envvar=True, help="Show the traceback of an error.")
def hawser(debug: bool) -> None:  # read by Root
    """Look after the jobs of a Hawser store."""


def run() -> NoReturn:
    """Run the command that the command line names, and end with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character gets its number, not a UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")
    try:
        hawser(prog_name="hawser")
    except OSError as error:
        # Not of a command, which Root answers for: of --help and --version.
        failed = refused(error)
        if failed is None:
            raise
        failed.show()
        sys.exit(failed.exit_code)
    except SystemExit as end:
        if end.code and threading.active_count() > 1:
            from hawser.telemetry.logs import flush  # noqa: PLC0415  # not for --help

            # A thread may still wait for the store. The program does not wait for it, only for its own last log lines.
            flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise
    sys.exit(0)
