"""Django's own tests of `django.tasks`, run with Hawser's backend in place of the backends that Django ships.

    python -m tests.drills.django_suite
    python -m tests.drills.django_suite 6.0

They are not part of Django's installation: its source distribution, of the version that is installed, is fetched with pip into a
folder that is removed afterwards. With a series, its latest version is fetched and used instead of what is installed. Needs
Django 6 and so Python 3.12.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import django

BACKEND: Final = '''
"""Hawser's backend with what Django's tests ask of the dummy backend besides: all results so far, and a way to forget them."""

from hawser.contrib.django.backend import HawserBackend


class DummyBackend(HawserBackend):
    def __init__(self, alias, params):
        super().__init__(alias, {**params, "OPTIONS": {"store": "memory://", "enqueue": "at_once"}})
        self.options = params.get("OPTIONS", {})

    def clear(self):
        self.app.close()
        self.app.use_store("memory://")

    @property
    def results(self):
        return [self.get_result(job.id) for job in self.app.find(limit=100).jobs]
'''

LEFT_OUT: Final = {
    "test_refresh_result": "it changes a result inside of the dummy backend",
    "test_refresh_result_async": "the same",
    "test_clear": "it is the dummy backend's own method",
}
"""Tests of the dummy backend itself."""


def main(series: str | None = None) -> int:
    with tempfile.TemporaryDirectory(prefix="hawser-django-") as folder:
        wanted = f"django=={series}.*" if series else f"django=={django.__version__}"
        tests = fetch(Path(folder), wanted)
        put_in_place(tests)
        return run(tests)


def fetch(folder: Path, wanted: str) -> Path:
    """Django of that version, with its tests."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
        wanted,
    ]
    subprocess.run(command, check=True, timeout=300)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as found:
        found.extractall(folder, filter="data")
    return next(folder.glob("*/tests"))


def put_in_place(tests: Path) -> None:
    """Let the tests of the dummy backend meet Hawser's."""
    (tests / "hawser_under_test.py").write_text(BACKEND)
    for name in ("test_tasks.py", "test_dummy_backend.py"):
        file = tests / "tasks" / name
        text = file.read_text().replace("django.tasks.backends.dummy", "hawser_under_test")
        for left_out in LEFT_OUT:
            text = text.replace(f"def {left_out}(", f"def left_out_{left_out}(")
        file.write_text(text)


def run(tests: Path) -> int:
    # The Django beside its tests goes before the one that is installed, for there may be another.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(tests.parent), os.environ.get("PYTHONPATH"))))}
    subprocess.run([sys.executable, "-c", "import django; print('Django', django.__version__)"], env=environ, check=True)
    command = [sys.executable, "runtests.py", "tasks.test_tasks", "tasks.test_dummy_backend", "--parallel", "1"]
    return subprocess.run(command, cwd=tests, env=environ, check=False, timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
