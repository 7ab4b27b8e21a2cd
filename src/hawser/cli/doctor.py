"""`hawser doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple

import click

from hawser import __version__
from hawser.api.page import Dashboard
from hawser.cli import options, show
from hawser.cli.format import clean, duration, now
from hawser.cli.opened_app import Opened, file_of, migration_of, opened, store_url_of
from hawser.client.explain import ALIVE_FOR, is_alive
from hawser.clock import at
from hawser.errors import HawserError
from hawser.outcome import describe
from hawser.stores import missing_rights, schema_of, sizes_of
from hawser.stores.url import without_password

Verdict = Literal["ok", "warning", "wrong"]

SKEW: Final = 1.0
"""Seconds by which the clock of the store may differ from this machine's: more makes times on screens and in logs disagree."""

MOUNTS: Final = Path("/proc/mounts")

_EXTRAS: Final = (
    ("server", "uvicorn"),
    ("metrics", "prometheus_client"),
    ("postgres", "asyncpg"),
    ("redis", "redis"),
    ("otel", "opentelemetry"),
)


class DoctorFinding(NamedTuple):
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    told: str
    do: str | None = None
    """What to do about it."""


@click.command()
@click.option("--app", metavar="APP", help="Look at this app, its tasks and its store: module:attribute or file.py:attribute.")
@click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
@options.as_json
def doctor(*, app: str | None, url: str | None, as_json: bool) -> None:
    """Look at versions, the dashboard, the store, its schema and settings, clocks, permissions and workers; say what is wrong and
    what to do.

    Nothing is changed. Exit codes: 0 nothing is wrong (there may be warnings), 1 something is.
    """
    findings = [*_versions(), *_page(), *_store(url, app)]
    if as_json:
        show.document({"findings": [finding._asdict() for finding in findings], "ok": not _is_wrong(findings)})
    else:
        for finding in findings:
            show.say(f"{finding.verdict:<8} {finding.check:<12} {clean(finding.told)}")
            if finding.do is not None:
                show.say(f"{'':<21} → {clean(finding.do)}")
    if _is_wrong(findings):
        raise click.exceptions.Exit(1)


def _is_wrong(findings: list[DoctorFinding]) -> bool:
    return any(finding.verdict == "wrong" for finding in findings)


def _versions() -> Iterator[DoctorFinding]:
    there = [extra for extra, module in _EXTRAS if importlib.util.find_spec(module)]
    told = f"hawser {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield DoctorFinding("versions", "ok", f"{told}; extras: {', '.join(there) or 'none'}")


def _page() -> Iterator[DoctorFinding]:
    missing = Dashboard().missing
    if missing is not None:
        yield DoctorFinding("dashboard", "warning", missing, "install Hawser again where npm or PyPI can be reached")


def _store(url: str | None, app: str | None) -> Iterator[DoctorFinding]:
    """What can be found out without the store first: each later look needs the one before it."""
    try:
        name = store_url_of(url, app) or ""
        yield from _permissions(name)
        with opened(url, app) as target:
            yield from _schema(name)
            yield DoctorFinding("store", "ok", f"{without_password(name)} answers")
            yield from _sizes(name)
            yield from _durable(target)
            yield from _clock(target)
            yield from _work(target)
    except HawserError as error:
        yield from _unopened(error)
    except OSError as error:
        yield DoctorFinding("store", "wrong", describe(error), "check the path and who may read it")


def _unopened(error: HawserError) -> Iterator[DoctorFinding]:
    text, _, remedy = str(error).rpartition("; ")
    yield DoctorFinding("store", "wrong", text or remedy, remedy if text else None)


def _schema(url: str) -> Iterator[DoctorFinding]:
    schema = schema_of(url)
    if schema is None:
        pass
    elif schema.current:
        yield DoctorFinding("schema", "ok", f"version {schema.version}")
    else:
        yield DoctorFinding("schema", "wrong", f"version {schema.version} of {schema.newest}", f"run: {migration_of(url)}")


def _sizes(url: str) -> Iterator[DoctorFinding]:
    if sizes := sizes_of(url):
        told = ", ".join(f"{part} {size / 1_000_000:,.1f} MB" for part, size in sizes.items())
        yield DoctorFinding("size", "ok", told)


def _permissions(url: str) -> Iterator[DoctorFinding]:
    """What keeps a store from being opened, or lets it fail later; looked at before it is opened."""
    path = file_of(url)
    if path is None:
        with suppress(HawserError):  # a server that does not answer is told when it is opened
            yield from _rights(url)
        return
    if not path.exists():
        return
    for what, place in (("file", path), ("folder", path.absolute().parent)):
        if not os.access(place, os.W_OK):
            yield DoctorFinding(
                "permissions", "wrong", f"the {what} {place} cannot be written by user {os.getuid()}", "change its owner or mode"
            )
    if _is_remote(path):
        yield DoctorFinding("file system", "wrong", f"{path} lies on a network file system", "use a local disk, or PostgreSQL")


def _rights(url: str) -> Iterator[DoctorFinding]:
    for may_not in missing_rights(url):
        yield DoctorFinding(
            "permissions",
            "wrong",
            f"the role of the URL may not {may_not}",
            "grant it, or name the role that owns the schema in the URL",
        )


def _is_remote(path: Path) -> bool:
    """By the longest mount point above the file, where the system tells."""
    try:
        mounts = [line.replace("\\040", " ").split(" ") for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return False
    above = [mount for mount in mounts if path.absolute().is_relative_to(mount[1])]
    return bool(above) and max(above, key=lambda mount: len(mount[1]))[2] in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")


def _durable(target: Opened) -> Iterator[DoctorFinding]:
    if target.store.durability == "durable":
        yield DoctorFinding("durability", "ok", "durable: a job is on disk before enqueue returns")
    else:
        yield DoctorFinding(
            "durability",
            "warning",
            "relaxed: the last jobs may be lost when the machine crashes",
            "leave durability=relaxed out of the URL",
        )


def _clock(target: Opened) -> Iterator[DoctorFinding]:
    before = now()
    theirs = at(target.ask(target.store.due_schedules(0)).now)
    after = now()
    apart = max(timedelta(0), before - theirs, theirs - after).total_seconds()
    if apart <= SKEW:
        yield DoctorFinding("clocks", "ok", "the store's clock and this machine's agree")
    else:
        told = f"the store's clock and this machine's differ by {duration(apart)}"
        yield DoctorFinding("clocks", "warning", told, "let NTP set both; jobs go by the store's clock")


def _work(target: Opened) -> Iterator[DoctorFinding]:
    seen = target.ask(target.store.workers())
    there = at(target.ask(target.store.due_schedules(0)).now)
    living = [each.beat for each in seen if is_alive(each, there)]
    silent = [each.beat.worker for each in seen if not is_alive(each, there)]
    yield DoctorFinding(
        "workers", "ok" if living else "warning", f"{len(living)} alive", None if living else "start one: hawser worker APP"
    )
    if silent:
        told = f"no sign of life for {duration(ALIVE_FOR)} of {', '.join(silent[:3])}{' and others' if len(silent) > 3 else ''}"
        yield DoctorFinding("silent", "warning", told, f"if it is dead, take its runs back: hawser workers reclaim {silent[0]}")
    for queue, stats in target.ask(target.store.queues()).items():
        if stats.due and living and not any(beat.serves(queue) for beat in living):
            yield DoctorFinding(
                "queues",
                "wrong",
                f"{stats.due:,} jobs are due in queue {queue}, which no worker serves",
                f"add {queue} to --queues",
            )
        if stats.paused:
            yield DoctorFinding("queues", "warning", f"queue {queue} is paused", f"run: hawser queues resume {queue}")
        if stats.dead:
            yield DoctorFinding(
                "dead", "warning", f"{stats.dead:,} dead jobs in queue {queue}", f"run: hawser dlq groups --queue {queue}"
            )
    if target.named:
        yield DoctorFinding("app", "ok", f"{len(target.app.tasks)} tasks")
