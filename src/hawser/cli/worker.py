"""`hawser worker`: run an app's jobs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

import click

from hawser.cli.group import Command
from hawser.errors import ConfigError, did_you_mean
from hawser.supervisor.start import run_supervisor
from hawser.telemetry.logs import LogOptions, configure
from hawser.worker.options import MetricsOptions, WorkerOptions, checked

_DEFAULT_WORKER = WorkerOptions()


@click.command(cls=Command, context_settings={"auto_envvar_prefix": "HAWSER_WORKER"})
@click.argument("app")
@click.option(
    "--queues",
    metavar="LIST",
    help="critical:6,default:3 shares places by weight; critical,default is a strict order; '*' is all. [default: default]",
)
@click.option("--slots", type=int, help=f"Jobs that one process runs at once. [default: {_DEFAULT_WORKER.slots}]")
@click.option("--processes", metavar="N|A..B", help="Processes; with A..B it scales between them on depth and age. [default: 1]")
@click.option(
    "--scale-down-after",
    type=float,
    help=f"Seconds of little to do after which scaling ends a process. [default: {_DEFAULT_WORKER.scale_down_after:g}]",
)
@click.option("--claim-batch", type=int, help=f"Most jobs in one claim. [default: {_DEFAULT_WORKER.claim_batch}]")
@click.option("--lease", type=float, help=f"Seconds that a claim holds without renewal. [default: {_DEFAULT_WORKER.lease:g}]")
@click.option(
    "--drain-timeout",
    type=float,
    help=f"Seconds that jobs have to finish after SIGTERM. [default: {_DEFAULT_WORKER.drain_timeout:g}]",
)
@click.option(
    "--isolates", type=int, help=f"Child processes a process may have for isolated jobs. [default: {_DEFAULT_WORKER.isolates}]"
)
@click.option(
    "--unaccepted-after",
    type=float,
    help=f"Seconds until a job is dead that no living worker accepts. [default: {_DEFAULT_WORKER.unaccepted_after:g}]",
)
@click.option("--tasks", metavar="LIST", help="Run these tasks only, such as send_email,resize. [default: all]")
@click.option("--not-tasks", metavar="LIST", help="Run all tasks but these.")
@click.option("--burst", is_flag=True, default=None, help="End when nothing is due that this worker may run.")
@click.option(
    "--app-version", metavar="TEXT", help="What your deploys call this version of the app. [default: what the app says]"
)
@click.option("--store", metavar="URL", help="Another store than the app's own.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="A TOML file with these options in a [worker] table."
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Show /metrics, /healthz and /readyz there; 0 takes a free one."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Where these pages listen; they ask for no key.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
def worker(
    app: str,
    processes: str | None,
    store: str | None,
    config: str | None,
    metrics_port: int | None,
    metrics_host: str,
    log_level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["plain", "json"],
    **options: Any,
) -> None:
    """Run the jobs of APP, which is module:attribute or path/to/file.py:attribute.

    SIGTERM, SIGHUP or Ctrl-C drains: nothing new is claimed, running jobs may finish, the rest is handed back without
    burning an attempt. A second one ends at once. SIGUSR1 tells where each thread is. Exit codes: 0 drained, 1 the store is
    away or the processes do not start, 2 the app or an option is wrong, 128 + the signal's number after a second signal.

    Every option may stand in the environment as HAWSER_WORKER_…; those from --queues to --app-version also in the file that
    --config names.
    """
    debug = click.get_current_context().find_root().params.get("debug")
    logs = LogOptions(level="debug" if debug else log_level, format=log_format)
    configure(logs)
    metrics = None if metrics_port is None else MetricsOptions(port=metrics_port, host=metrics_host)
    sys.exit(run_supervisor(app, _options(processes, config, options), store=store, logs=logs, metrics=metrics))


def _options(processes: str | None, config: str | None, options: dict[str, Any]) -> WorkerOptions:
    given = {**_from_file(config), **{name: value for name, value in options.items() if value is not None}}
    if processes is not None:
        given["processes"] = processes
    fewest, most = _range(given.pop("processes", None))
    return checked(**given, processes=fewest, most_processes=most)


def _range(text: object) -> tuple[int | None, int | None]:
    if text is None or isinstance(text, int):
        return text, None
    fewest, dots, most = str(text).partition("..")
    if not fewest.isdigit() or (dots and not most.isdigit()) or (dots and int(most) < int(fewest)):
        raise ConfigError(f"processes: {text!r} is not a number, nor a range such as 1..8")
    return int(fewest), int(most) if dots else None


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: {path!r} is not TOML: {error}") from error
    for name in content.keys() - {"worker"}:
        raise ConfigError(f"config: {path!r} has the unknown table {name}; {did_you_mean(name, ['worker'])}")
    table = content.get("worker", {})
    if not isinstance(table, dict):
        raise ConfigError(f"config: in {path!r} worker is not a table; write [worker] above its options")
    known = sorted(set(WorkerOptions.__struct_fields__) - {"most_processes"})
    for name in table:
        if name.replace("-", "_") not in known:
            raise ConfigError(f"config: {path!r} has the unknown key worker.{name}; {did_you_mean(name, known)}")
    return {name.replace("-", "_"): value for name, value in table.items()}
