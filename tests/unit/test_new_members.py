"""A new outcome or a new state: mypy names every place that must decide what to do with it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

from hawser.outcome import Outcome

ROOT = Path(__file__).parents[2]

PLACES = {
    # Outcomes are told apart here only: stores, worker, logs, metrics and tracing ask these functions.
    "outcome.py": ["failure_in", "follow", "gives_back", "hands_back", "holds", "ready_word", "was_lost", "worked"],
    # States.
    "job.py": ["finished"],
    "cli/job_view.py": ["_when"],
    "client/results.py": ["_value"],
    "stores/memory/operations.py": ["_cancel"],
    "stores/postgres/search.py": ["_table"],
    "stores/sqlite/operations.py": ["cancel"],
    "telemetry/reporter.py": ["_report"],
}
"""The functions that must decide what to do with a new member."""

CHANGES = (
    ("outcome.py", "\nOutcome = Done", "\nclass Parked(msgspec.Struct, tag=True):\n    pass\n\n\nOutcome = Parked | Done"),
    ("job.py", '    READY = "ready"\n', '    READY = "ready"\n    PARKED = "parked"\n'),
)

_ERROR = re.compile(r"^(?:.*/)?hawser/(?P<path>[^:]+):(?P<line>\d+): error: ")
_FUNCTION = re.compile(r"\s*(?:async )?def (\w+)")


def places(tmp_path: Path) -> dict[str, list[str]]:
    """The functions in which mypy finds an error after a new outcome and a new state were added, by file."""
    package = tmp_path / "hawser"
    shutil.copytree(ROOT / "src" / "hawser", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in CHANGES:
        text = (package / name).read_text()
        assert text.count(old) == 1
        (package / name).write_text(text.replace(old, new))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-incremental", str(package)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    found: dict[str, set[str]] = {}
    for line in run.stdout.splitlines():
        if match := _ERROR.match(line):
            above = (package / match["path"]).read_text().splitlines()[: int(match["line"])]
            inside = next(begin[1] for text in reversed(above) if (begin := _FUNCTION.match(text)))
            found.setdefault(match["path"], set()).add(inside)
    return {path: sorted(names) for path, names in found.items()}


def test_a_new_member_breaks_mypy_wherever_it_must_be_decided(tmp_path: Path):
    assert places(tmp_path) == PLACES


def test_no_other_module_tells_outcomes_apart():
    """An `isinstance` outside of `outcome.py` would pass over a new outcome in silence."""
    kinds = "|".join(kind.__name__ for kind in get_args(Outcome))
    told = re.compile(rf"isinstance\([^()]*, \(?(?:{kinds})\b|type\([^()]*outcome\) is")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted((ROOT / "src" / "hawser").rglob("*.py"))
        if path.name != "outcome.py" and "testing" not in path.parts
        for match in told.finditer(path.read_text())
    ]
    assert found == []
