"""A password in the store's URL is shown nowhere: not by a command, a log, an error, an answer or a metric."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from hawser.api.routes import ROUTES
from hawser.cli.program import COMMANDS
from tests.cli.conftest import Run
from tests.postgres import new_schema, server, versions, with_schema
from tests.redis_servers import RunningServer

SECRET = "pl4nted"
ROOT = Path(__file__).parents[2]
APP = "tests.api.shop:app"

PASSWORDS = (SECRET, f"a/{SECRET}", f"a@{SECRET}", f"9%{SECRET}", f"1#{SECRET}", f"7?{SECRET}", f"é:{SECRET}", f"[{SECRET}")

COMMAND_LINES = (
    ("stats",),
    ("stats", "--json"),
    ("top", "--once"),
    ("jobs",),
    ("jobs", "show", "01900000-0000-7000-8000-000000000000"),
    ("jobs", "cancel", "01900000-0000-7000-8000-000000000000"),
    ("jobs", "output", "01900000-0000-7000-8000-000000000000"),
    ("dlq", "--json"),
    ("batches", "--json"),
    ("batches", "close", "01900000-0000-7000-8000-000000000000"),
    ("queues",),
    ("queues", "pause", "mail"),
    ("limits",),
    ("breakers",),
    ("steps", "01900000-0000-7000-8000-000000000000"),
    ("rewind", "01900000-0000-7000-8000-000000000000", "--all"),
    ("emit", "packed:42"),
    ("tasks", "--app", APP),
    ("workers", "--json"),
    ("audit", "--json"),
    ("doctor",),
    ("completion", "bash"),
    ("schedules",),
    ("keys",),
    ("keys", "create", "a", "--role", "viewer"),
    ("enqueue", APP, "charge"),
    ("scheduler",),
    ("serve", APP),
    ("migrate",),
    ("migrate", "--check", "--json"),
)
"""A line for each command that opens a store and ends by itself; the others are started as processes below."""

STARTED = {"worker", "serve"}
MADE_FOR_THEMSELVES = {"demo", "bench", "lab"}
"""They are given stores like the others: `--store` is an option of theirs."""


def test_every_command_is_looked_at():
    looked_at = {line[0] for line in COMMAND_LINES} | STARTED | MADE_FOR_THEMSELVES
    assert looked_at == set(COMMANDS)


def urls(host: str) -> Iterator[str]:
    """The places where a password may stand, well-formed or not."""
    for password in PASSWORDS:
        yield f"postgresql://ann:{password}@{host}/jobs"
        yield f"postgresql://ann:{quote(password, safe='')}@{host}/jobs"
        yield f"postgres://ann:{password}@{host}/jobs?schema=Not-A-Name"
        yield f"ann:{password}@{host}/jobs"
        yield f"mysql://ann:{password}@{host}/jobs"
        yield f"sqlite://ann:{password}@{host}/jobs.db"
        yield f"memory://ann:{password}@{host}"
    for where in (f"postgresql://{host}/jobs?user=ann&", f"postgresql:///jobs?host={host}&", "sqlite:///x.db?timeout=no&"):
        for name in ("password", "PASSWORD", "sslpassword", "pass%77ord", "passwd"):
            yield f"{where}{name}={SECRET}"
            yield f"{where}{name}=a@{SECRET}&timeout=never"
    yield from redis_urls(host)
    yield f"postgresql://ann:{SECRET}/jobs"
    yield f"host={host} user=ann password={SECRET} dbname=jobs"
    yield f"host={host} user=ann password = '{SECRET} x' dbname=jobs"
    yield f"postgresql://ann:{SECRET}@{host}:port/jobs"
    yield f"postgresql://ann:{SECRET}@[{host}/jobs"
    yield f"postgresql+asyncpg://ann:{SECRET}@{host}/jobs"


def redis_urls(host: str) -> Iterator[str]:
    for password in PASSWORDS[:4]:
        for user in ("", "ann"):
            yield f"redis://{user}:{password}@{host}/0"
        yield f"rediss://ann:{quote(password, safe='')}@{host}/0"
        yield f"unix://ann:{quote(password, safe='')}@/nowhere/redis.sock"
        yield f"redis://ann:{quote(password, safe='')}@{host},{host}/0?master=jobs&sentinel_password={quote(password, safe='')}"
    for name in ("password", "PASSWORD", "sentinel_password", "pass%77ord", "auth_token"):
        yield f"redis://{host}/0?{name}={SECRET}"
        yield f"unix:///nowhere/redis.sock?{name}=a@{SECRET}&timeout=never"
    yield f"redis://{host},{host}/0?master=&sentinel_user=ann&sentinel_password={SECRET}"
    yield f"redis://ann:{SECRET}/0"
    yield f"rediss://ann:{SECRET}@{host}/0?ssl_ca_certs=/nowhere/ca.pem"


@pytest.mark.parametrize(
    "line", [*COMMAND_LINES, ("demo", "--seconds", "1"), ("bench", "--jobs", "1000"), ("lab", "drain", "--quick")], ids=" ".join
)
def test_no_command_shows_a_password(
    bare: Run, line: tuple[str, ...], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The server refuses every connection: what is wrong with the URL, and that nobody answers, is all there is to say."""
    monkeypatch.chdir(ROOT)
    for url in urls("127.0.0.1:1"):
        given = () if "--app" in line else ("--store", url)
        monkeypatch.setenv("HAWSER_STORE", url)
        for debug in ((), ("--debug",)):
            result = bare(*debug, *line, *given)
            assert result.exit_code in (1, 2), (url, result.output)
            assert SECRET not in result.output, (url, result.output)
            assert SECRET not in result.stderr, (url, result.stderr)
            assert SECRET not in caplog.text, (url, caplog.text)


@contextmanager
def postgres_with_a_password() -> Iterator[str]:
    yield with_schema(server(versions()[0]), new_schema()).replace("://postgres@", f"://postgres:{SECRET}@")


@contextmanager
def valkey_with_a_password() -> Iterator[str]:
    """By its socket; it asks for the password."""
    running = RunningServer("valkey", requirepass=SECRET).start()
    try:
        yield running.url.replace("unix://", f"unix://default:{SECRET}@")
    finally:
        running.stop()


WITH_A_PASSWORD = [(postgres_with_a_password, "postgresql://postgres:***@"), (valkey_with_a_password, "unix://default:***@")]


@pytest.mark.parametrize(("opened", "shown_as"), WITH_A_PASSWORD)
def test_no_command_shows_the_password_of_a_store_that_answers(
    opened: Callable[[], AbstractContextManager[str]],
    shown_as: str,
    bare: Run,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """`migrate` comes first: it makes the store. Those that run until they are told to end are started below, but for the
    scheduler, which says nothing of its store."""
    monkeypatch.chdir(ROOT)
    lines = [line for line in COMMAND_LINES if line[0] not in STARTED | {"scheduler"}]
    said, worked = "", set[str]()
    with opened() as url:
        assert SECRET in url
        monkeypatch.setenv("HAWSER_STORE", url)
        for line in [("migrate",), *lines, ("bench", "--jobs", "1000"), ("demo", "--seconds", "1")]:
            given = () if "--app" in line else ("--store", url)
            for debug in ((), ("--debug",)) if line[0] not in MADE_FOR_THEMSELVES else ((),):
                result = bare(*debug, *line, *given)
                said += f"{result.output}{result.stderr}"
                assert SECRET not in result.output, (line, result.output)
                assert SECRET not in result.stderr, (line, result.stderr)
                assert SECRET not in caplog.text, (line, caplog.text)
                if result.exit_code == 0:
                    worked.add(" ".join(line))
    assert {
        "migrate",
        "stats",
        "jobs",
        "doctor",
        "enqueue tests.api.shop:app charge",
        "bench --jobs 1000",
        "demo --seconds 1",
    } <= worked, said
    assert shown_as in said


@pytest.mark.parametrize(("opened", "shown_as"), WITH_A_PASSWORD)
def test_what_runs_for_long_shows_no_password(opened: Callable[[], AbstractContextManager[str]], shown_as: str, tmp_path: Path):
    """Worker and server on a store that is there: their logs, all pages of the server, the worker's metrics."""
    with opened() as url:
        assert SECRET in url
        whole, pages = what_is_shown(url, tmp_path)
    assert shown_as in whole
    assert SECRET not in whole
    assert not [page for page in pages if SECRET in page]
    assert any("hawser_store_up 1" in page for page in pages)


def what_is_shown(url: str, tmp_path: Path) -> tuple[str, list[str]]:
    """The log of both, and the pages."""
    env = {**os.environ, "HAWSER_STORE": url}
    pages: list[str] = []
    log = tmp_path / "log"
    with started(env, log, "serve", APP, "--port", "0", ready="Application startup complete") as said:
        base = re.findall(r"on (http://\S+:\d+)", said)[0]
        with started(env, log, "worker", APP, "--queues", "mail,default", "--metrics-port", "0", ready="is ready: store") as told:
            shown = re.findall(r"(http://\S+:\d+)/metrics", told)
            pages += [fetched(f"{shown[0]}/{page}") for page in ("metrics", "healthz", "readyz")]
            pages += [
                fetched(f"{base}{route.path}")
                for route in ROUTES
                if route.method == "GET" and "{" not in route.path and route.path != "/events"
            ]
    return log.read_text(), pages


def fetched(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode()}"


@contextmanager
def started(env: dict[str, str], log: Path, *args: str, ready: str) -> Iterator[str]:
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out:
        process = subprocess.Popen([sys.executable, "-m", "hawser.cli", *args], cwd=ROOT, env=env, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 30
        while ready not in (said := log.read_text()[before:]):
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)
        yield said
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
