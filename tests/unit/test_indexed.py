"""Arguments that jobs are found by: declared on a task, the same text from Python, JSON and an address."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from hawser import Hawser
from hawser.errors import ConfigError, InvalidJob

HERE = UUID("0123e4e2-0000-4000-8000-000000000000")


@pytest.fixture
def app() -> Hawser:
    app = Hawser("memory://")

    @app.task(index=["user_id", "shop"], group="shop")
    def order(user_id: Any, shop: str = "main", note: str = "") -> None: ...

    @app.task
    def plain(user_id: int) -> None: ...

    return app


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), ("a b", "a b"), (HERE, str(HERE)), (True, "true"), (-7, "-7"), (2**63, "9223372036854775808")]
)
def test_a_job_has_the_texts_of_its_indexed_arguments(app: Hawser, value: Any, text: str):
    job = app.tasks["order"].job(user_id=value)
    assert (job.index, job.group) == ((f"user_id={text}", "shop=main"), "main")


def test_a_job_that_comes_as_json_is_indexed(app: Hawser):
    job = app.job_from_json("order", b'{"user_id": 42}', {"priority": 9, "group": "own"})
    assert (job.index, job.group) == (("user_id=42", "shop=main"), "own")
    assert app.job_from_json("order", b'{"user_id": 42}', {}).index == ("user_id=42", "shop=main")


def test_an_argument_that_is_none_is_not_indexed(app: Hawser):
    assert app.tasks["order"].job(user_id=None).index == ("shop=main",)
    assert app.tasks["plain"].job(user_id=1).index == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"user_id": 1, "shop": "x" * 300}, "shop: it is indexed"),
        ({"user_id": [1]}, "user_id: a value of type list cannot be indexed"),
        ({"user_id": 1.5}, "user_id: a value of type float cannot be indexed"),
    ],
)
def test_a_value_that_no_index_can_have_is_refused(app: Hawser, arguments: dict[str, Any], words: str):
    with pytest.raises(InvalidJob, match=words):
        app.tasks["order"].job(**arguments)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("user_id", "is not a list of names"),
        (["user"], "it has no parameter 'user'"),
        (["a", "b", "c", "d"], "4 parameters; at most 3"),
    ],
)
def test_a_wrong_declaration_is_told(index: Any, words: str):
    app = Hawser("memory://")
    with pytest.raises(ConfigError, match=words):

        @app.task(index=index)
        def order(user_id: int, a: int, b: int, c: int, d: int) -> None: ...


def test_jobs_are_found_by_an_argument_and_by_no_other(app: Hawser):
    with app:
        order = app.tasks["order"]
        wanted = order.enqueue(user_id=42)
        order.enqueue(user_id=43)
        assert [job.id for job in app.find(argument={"user_id": 42}).jobs] == [wanted.id]
        assert [job.id for job in app.find(argument="user_id=42", task="order").jobs] == [wanted.id]
        again = order.using(priority=9).enqueue(user_id=42)
        assert {job.id for job in app.find(argument={"user_id": 42}).jobs} == {wanted.id, again.id}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"note": "x"}, "no task declares 'note' as indexed; known are shop, user_id"),
        ({"user_id": 1, "shop": 2}, "is not one argument and its value"),
        ("user_id", "is not one argument and its value"),
        ({"user_id": 1.5}, "is not one argument and its value"),
    ],
)
def test_an_argument_that_cannot_be_searched_is_refused(app: Hawser, argument: Any, words: str):
    with app, pytest.raises(ConfigError, match=words):
        app.find(argument=argument)
