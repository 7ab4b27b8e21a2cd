"""The suite hears SIGINT, however it was started: see `tests/conftest.py`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_sigint_ends_what_the_suite_starts():
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        child.send_signal(signal.SIGINT)
        child.wait(30)
    assert child.returncode == -signal.SIGINT


def test_a_run_that_was_started_deaf_to_sigint_hears_it_all_the_same():
    """As `nohup` starts it, or `&` in a script: its children would inherit that, and wait for ever."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    this = f"{Path(__file__).relative_to(ROOT)}::test_sigint_ends_what_the_suite_starts"
    run = subprocess.run(
        ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *pytest, this],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stdout + run.stderr
