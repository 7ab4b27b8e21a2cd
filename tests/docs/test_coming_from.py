"""The pages for those who come from another queue: what they say stands beside a word of theirs is there, each row."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import hawser
from hawser.client.batch_calls import OpenBatch
from hawser.handle import Handle
from hawser.job import Claimed, NewJob
from hawser.task import Task
from hawser.task_options import METHODS_ELSEWHERE, JobOptions, TaskSettings
from hawser.testing import AppUnderTest
from hawser.worker.options import WorkerSettings
from tests.docs.documents import ROOT

PAGES = sorted((ROOT / "docs" / "guides").glob("from-*.md"))

PROMISES = re.compile(r"\b(yet|soon|planned|later release|none so far|no counterpart|not supported)\b", re.IGNORECASE)
"""How a page says that something is missing. What is missing for good is said with what to do instead."""


def context() -> hawser.Context:
    """What a handler is given."""
    app = hawser.Hawser("memory://")

    @app.task
    def ship(ctx: hawser.Context) -> object:
        return ctx

    given = ship()
    assert isinstance(given, hawser.Context)
    return given


OBJECTS: dict[str, Any] = {
    "app": hawser.Hawser,
    "batch": OpenBatch,
    "ctx": context(),
    "ctx.job": Claimed,
    "handle": Handle,
    "hawser_app": AppUnderTest,
    "task": Task,
    "next": Task,
}
"""What the names in the right column stand for."""

FREE = {"a", "b", "first"}
"""Arguments of a task of the reader's, and jobs."""


def names(what: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(what).parameters)


NAMED = {
    *get_type_hints(TaskSettings),
    *get_type_hints(JobOptions),
    *get_type_hints(WorkerSettings),
    *(name for kind in (hawser.Limit, hawser.Retention, hawser.Exponential, hawser.Fixed) for name in names(kind)),
    *(name for call in (Handle.result, Handle.wait, hawser.Hawser.batch, hawser.Retry, NewJob.after) for name in names(call)),
}
"""What is given by name somewhere."""


def rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """The number of each row of a page's tables, their word, and ours."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("| ") and not re.fullmatch(r"\| (Celery|RQ|Dramatiq|Procrastinate) \| Hawser \|", line):
            theirs, _, ours = line.strip("| ").partition(" | ")
            yield number, theirs, ours


ROWS = [(path, *row) for path in PAGES for row in rows(path)]


def test_all_pages_are_found():
    assert [path.stem for path in PAGES] == ["from-celery", "from-dramatiq", "from-procrastinate", "from-rq"]
    assert len(ROWS) > 80


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_promises_nothing(path: Path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert PROMISES.findall(text) == []


@pytest.mark.parametrize(("path", "number", "theirs", "ours"), ROWS, ids=[f"{path.stem}:{number}" for path, number, *_ in ROWS])
def test_what_a_row_names_is_there(path: Path, number: int, theirs: str, ours: str):
    code = " ".join(re.findall(r"`([^`]+)`", ours))
    code = re.sub(r'"[^"]*"', '""', code)
    given = set(re.findall(r"\b([a-z_]+)=", code))
    assert given - NAMED - FREE == set()
    for thing, name in re.findall(r"\b([a-z_]+(?:\.job(?=\.))?)\.([a-z_]+)\b", code):
        if thing in OBJECTS:
            known = OBJECTS[thing]
            assert hasattr(known, name) or name in getattr(known, "__annotations__", {}), f"{thing} has no {name}"
    for name in re.findall(r"(?<![.\w])([A-Z][A-Za-z]+)\(", code):
        assert hasattr(hawser, name), f"hawser has no {name}"


def test_the_methods_elsewhere_that_a_page_names_are_known_to_a_task():
    """`task.delay` and the like, in the sentence behind each table of words."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        sentences = re.findall(r"^(`(?:task|actor)\.[^\n]*on a Hawser task raise)", text, re.MULTILINE)
        told = {name for sentence in sentences for name in re.findall(r"`(?:task|actor)\.(\w+)`", sentence)}
        assert told <= set(METHODS_ELSEWHERE), path.stem
        assert told or path.stem == "from-rq"
