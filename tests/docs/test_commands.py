"""The `hawser` lines of the shell snippets, run in a folder with a store that has what they speak of."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner

from hawser import Hawser
from hawser.cli.program import hawser as program
from hawser.store import Beat
from tests.docs.documents import DOCUMENTS, commands, name
from tests.docs.test_documents import environ

ONLY_PARSED: Final = {
    r"hawser (serve|scheduler|top|lab|bench)\b": "runs until it is stopped, or for minutes; each has tests of its own",
    r"hawser .*--watch": "runs until it is stopped",
    r"hawser .*postgresql://": "names a server that is not there; the same commands run on SQLite here",
    r"hawser .*tasks:jobs": "is of the shop, which tests/docs/test_shop.py plays on PostgreSQL",
}
"""Lines that are not run here, and why: their command and its options exist, says test_documents."""

APP: Final = """
import os
from hawser import Cron, Drop, Hawser, SyncContext

app = Hawser(os.environ.get("HAWSER_STORE", "sqlite:///jobs.db"))


@app.task(queue="mail")
def send_email(to: str, template: str = "welcome") -> None:
    if to.startswith("down"):
        raise Drop("the mail server is down")


@app.task
def charge(ctx: SyncContext, order: int) -> None:
    ctx.step("charge", lambda: order)
    raise Drop("the bank is closed")


@app.task
def resize(image: str = "cat") -> None: ...


@app.task
def transcode(film: str = "cat") -> None: ...


@app.task(schedule={"nightly_report": Cron("30 2 * * *")})
def nightly_report() -> None: ...
"""

FILL: Final = """
import asyncio
from shop import app, charge, nightly_report, resize, send_email
from hawser import Every


async def main():
    await app.schedules.acreate("eu.hourly", "resize", Every(hours=1))
    dead, steps = await send_email.aenqueue("down@example.com"), await charge.aenqueue(17)
    async with app.worker("*", burst=True) as worker:
        await worker.wait()
    waiting = await send_email.using(delay=3600, tags=["campaign:42"]).aenqueue("ann@example.com")
    open_batch = app.batch("import-42")
    await open_batch._open()
    await open_batch.aadd(resize.job())
    print(dead.id, steps.id, waiting.id, open_batch.id)
    await app.aclose()


asyncio.run(main())
"""


class Scratch(NamedTuple):
    """A folder with an app and its store, and the ids of what is in it."""

    folder: Path
    dead: str
    steps: str
    waiting: str
    batch: str


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    folder = tmp_path_factory.mktemp("commands")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text(APP)
    (folder / "shop" / "tasks.py").write_text("from shop import app\n")
    for module in ("tasks", "reports"):
        (folder / f"{module}.py").write_text("from shop import app\n")
    done = subprocess.run(
        [sys.executable, "-c", FILL], cwd=folder, env=environ(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return Scratch(folder, *done.stdout.split())


@pytest.fixture
def scratch(filled: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """A copy for one command."""
    folder = tmp_path / "reader"
    shutil.copytree(filled.folder, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HAWSER_STORE", f"sqlite:///{folder}/jobs.db")
    return filled._replace(folder=folder)


def why_not(text: str) -> str | None:
    return next((why for pattern, why in ONLY_PARSED.items() if re.match(pattern, text)), None)


LINES = [(path, line, text) for path in DOCUMENTS for line, text in commands(path) if text.startswith("hawser ")]
RUN = [(path, line, text) for path, line, text in LINES if why_not(text) is None]


def test_most_commands_are_run():
    assert len(RUN) > 75
    for pattern in ONLY_PARSED:
        assert any(re.match(pattern, text) for _, _, text in LINES), f"no document has {pattern} any more"


@pytest.mark.parametrize(("path", "line", "text"), RUN, ids=[f"{name(path)}:{line}" for path, line, _ in RUN])
def test_a_command_in_a_document_runs(path: Path, line: int, text: str, scratch: Scratch):
    words = prepared(shlex.split(text, comments=True)[1:], scratch)
    # A process of its own, as the app that a command names stays imported.
    done = subprocess.run(
        [sys.executable, "-m", "hawser.cli", *words],
        cwd=scratch.folder,
        env={**environ(), "HAWSER_STORE": f"sqlite:///{scratch.folder}/jobs.db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def prepared(words: list[str], scratch: Scratch) -> list[str]:
    """The ids of the documents in place of ours, and what the command speaks of in the store."""
    match words:
        case ["worker", *_]:
            words = [*words, "--burst"] if "--burst" not in words else words
        case ["workers", "reclaim", worker, *_]:
            with Hawser(f"sqlite:///{scratch.folder}/jobs.db") as app:
                beat = Beat(worker=worker, host="web-1", pid=4711, version="0", queues=("default",), slots=1, running=0)
                app._connection.portal.call(app._connection.store.beat([beat]))
            with closing(sqlite3.connect(scratch.folder / "jobs.db")) as con, con:
                con.execute("update hawser_worker set seen_at = seen_at - 60000000")
        case ["dlq" | "jobs", "replay" | "cancel", first, *_] if first.startswith("--") and "--yes" not in words:
            words = [*words, "--yes"]  # with a terminal it asks
        case ["keys", "revoke", _, *rest]:
            said = CliRunner().invoke(program, ["keys", "create", "billing", "--role", "producer", "--json"]).stdout
            words = ["keys", "revoke", str(re.search(r"hawser_([0-9a-f]{12})_", said)[1]), *rest]  # type: ignore[index]
        case ["queues" | "tasks", "resume", paused, *_]:
            assert CliRunner().invoke(program, [words[0], "pause", paused]).exit_code == 0
        case ["limits", "clear", *rest]:
            assert CliRunner().invoke(program, ["limits", "set", *rest[:2], "--running", "5"]).exit_code == 0
        case ["schedules", "resume", schedule]:
            assert CliRunner().invoke(program, ["schedules", "pause", schedule]).exit_code == 0
    of_dead = words[0] == "dlq" or words[:2] == ["jobs", "retry"]
    ids = {
        "01900000-0000-7000-8000-000000000000": scratch.dead if of_dead else scratch.waiting,
        "019f6efd-6c33-7db2-b0c1-5f5a4a1fdd36": scratch.batch,
        "ID": scratch.steps,
        "sqlite:///jobs.db": f"sqlite:///{scratch.folder}/jobs.db",
    }
    assert os.environ["HAWSER_STORE"]
    return [ids.get(word, word) for word in words]
