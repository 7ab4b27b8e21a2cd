"""Numbers that must agree stand in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hawser import Hawser
from hawser.job import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT, NewJob
from hawser.policy import attempts_of
from hawser.schedule.schedule import Definition

SRC = Path(__file__).parents[2] / "src" / "hawser"


def test_the_default_timeout_is_the_same_everywhere():
    @Hawser("memory://").task
    def work() -> None:
        """A task."""

    fields = dict(zip(Definition.__struct_fields__[::-1], Definition.__struct_defaults__[::-1], strict=False))
    assert NewJob(task="t", body=b"{}").timeout == work.job().timeout == fields["timeout"] == DEFAULT_TIMEOUT


def test_the_default_attempts_are_the_same_everywhere():
    assert attempts_of(None, None) == DEFAULT_ATTEMPTS


def test_the_wait_after_a_fault_of_the_worker_stands_once():
    """For a task that is not there, a start or a backoff that failed: `FAULT_AFTER`."""
    numbers = {
        f"{path.name}: {ast.unparse(node)}"
        for folder in ("worker", "supervisor")
        for path in (SRC / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign | ast.Assign | ast.Call)
        if any(isinstance(child, ast.Constant) and child.value == 60 for child in ast.iter_child_nodes(node))
    }
    other_times = {"isolates.py: READY_WITHIN = 60.0", "refusals.py: REST: Final = 60.0"}
    assert numbers - other_times == {"ending.py: FAULT_AFTER: Final = 60.0"}


def test_no_other_source_writes_the_default_timeout_out():
    literal = re.compile(r"timeout\w*(?:: [^=\n]*)? = 300(?:\.0)?$", re.MULTILINE | re.IGNORECASE)
    found = [str(path.relative_to(SRC)) for path in sorted(SRC.rglob("*.py")) if literal.search(path.read_text())]
    assert found == ["job.py"]
