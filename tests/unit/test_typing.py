"""What mypy --strict says to the right and the wrong uses in tests/typing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "typing"

_ERROR = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")
_MARK = re.compile(r"# error: (?P<codes>[a-z, -]+)$")


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[int, set[str]]]:
    """Line and codes of each error, by file."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"),
            *("--cache-dir", str(ROOT / ".mypy_cache" / "typing"), str(CASES / "right.py"), str(CASES / "wrong.py")),
        ],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    assert "checked 2 source files" in run.stdout
    found: dict[str, dict[int, set[str]]] = {"right.py": {}, "wrong.py": {}}
    for line in run.stdout.splitlines():
        if match := _ERROR.match(line):
            found[Path(match["path"]).name].setdefault(int(match["line"]), set()).add(match["code"])
    return found


def test_right_uses_are_accepted(errors):
    assert errors["right.py"] == {}


def test_every_marked_line_is_refused_and_no_other(errors):
    lines = (CASES / "wrong.py").read_text().splitlines()
    marked = {number: set(match["codes"].split(", ")) for number, line in enumerate(lines, 1) if (match := _MARK.search(line))}
    assert len(marked) > 30
    assert errors["wrong.py"] == marked
