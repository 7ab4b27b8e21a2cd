"""The five minutes of the README, as a reader would spend them: the files written, the commands run, in its order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import ROOT, commands, snippets
from tests.docs.test_documents import environ

README = ROOT / "README.md"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hawser(tmp_path: Path) -> Iterator[Start]:
    """Starts the program in the reader's folder."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hawser.cli", *words],
            cwd=tmp_path,
            env=environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)


def test_the_first_steps_work(tmp_path: Path, hawser: Start):
    told = [text for _, text in commands(README)]
    steps = ["python enqueue.py", "hawser worker tasks:app", "hawser stats", "hawser jobs"]
    assert [step for step in told if step in steps] == steps, "the README tells it otherwise: adapt this test"

    for snippet in snippets(README, "python"):
        if snippet.file is not None:
            (tmp_path / snippet.file).write_text(snippet.text, encoding="utf-8")
    run = subprocess.run([sys.executable, "enqueue.py"], cwd=tmp_path, env=environ(), capture_output=True, text=True, check=True)
    id, created, state = run.stdout.split()
    assert (created, state) == ("True", "ready")

    worker = hawser("worker", "tasks:app")
    try:
        end = time.monotonic() + 30
        while (stats := look(hawser, "stats"))["done"] < 3:
            assert time.monotonic() < end, stats
            time.sleep(0.2)
    finally:
        worker.send_signal(signal.SIGINT)
        out, log = worker.communicate(timeout=40)
    assert worker.returncode == 0, log
    assert "welcome to ann@example.com" in out
    assert (stats["scheduled"], stats["dead"], stats["durability"]) == (1, 0, "durable")

    jobs = look(hawser, "jobs")["jobs"]
    assert sorted(job["task"] for job in jobs) == ["resize", "resize", "send_email", "send_email"]
    assert look(hawser, "jobs", "show", id)["state"] == "done"
    for words in (["stats"], ["jobs"], ["jobs", "show", id]):
        shown = hawser(*words)
        text, errors = shown.communicate(timeout=30)
        assert (shown.returncode, errors) == (0, "")
        assert text


def look(hawser: Start, *words: str) -> dict[str, Any]:
    process = hawser(*words, "--json")
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    answer: dict[str, Any] = json.loads(out)
    return answer
