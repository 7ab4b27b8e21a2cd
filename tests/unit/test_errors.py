"""The tree of errors."""

from __future__ import annotations

import inspect
import re

import hawser
from hawser import FieldError, HawserError, InvalidJob, JobNotFound, QueueFull, errors


def classes() -> dict[str, type[Exception]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }


def test_all_errors_have_one_root():
    assert all(issubclass(kind, HawserError) for kind in classes().values())


def test_the_tree_on_top_of_the_file_is_the_tree_of_the_classes():
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ([│├└─ ]*)(\w+)", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    assert drawn == {name: None if kind is HawserError else kind.__bases__[0].__name__ for name, kind in classes().items()}


def test_every_error_is_a_public_name():
    assert {name for name in classes() if getattr(hawser, name, None) is not classes()[name]} == set()
    assert set(hawser.__all__) <= set(dir(hawser))


def test_an_invalid_job_names_each_field():
    error = InvalidJob(FieldError("queue", "the name is empty"), FieldError("priority", "10 is too high"))
    assert str(error) == "queue: the name is empty; priority: 10 is too high"
    assert isinstance(error, ValueError)


def test_messages_end_with_what_to_do():
    assert "try again later, add workers, or raise the limit" in str(QueueFull("mail", 5, 5))
    assert "never enqueued here, or pruned" in str(JobNotFound("x"))
    assert isinstance(JobNotFound("x"), LookupError)
