"""Limits per group: what is refused, and how a task declares them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hawser import Hawser, Limit
from hawser.errors import ConfigError, InvalidJob


@pytest.fixture
def app() -> Iterator[Hawser]:
    with Hawser("memory://") as app:
        yield app


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"per_group": True}, "per_group: it says nothing of a group"),
        ({"per_group": "yes", "running": 1}, "per_group: 'yes' is not True or False"),
        ({"ordered": 1, "running": 1, "per_group": True}, "ordered: 1 is not True or False"),
        ({"ordered": True}, "ordered: the jobs of a group start one after the other; add running=1, per_group=True"),
        ({"ordered": True, "per_group": True, "running": 2}, "ordered: "),
        ({"ordered": True, "per_group": True, "rate": "1/s"}, "ordered: "),
        ({"ordered": True, "running": 1}, "ordered: "),
        ({"per_group": True, "running": 1, "max_depth": 5}, "per_group: a group has no depth"),
    ],
)
def test_a_wrong_limit_per_group_is_refused_with_its_field(fields: dict[str, Any], named: str):
    with pytest.raises(ConfigError) as refused:
        Limit(**fields)
    assert str(refused.value).startswith(named)


def test_a_limit_per_group_is_of_a_task(app: Hawser):
    for given in ({"running": 1, "per_group": True}, {"ordered": True}):
        with pytest.raises(ConfigError, match="only a task has limits per group; name the task"):
            app.set_limit(queue="mail", **given)
    assert app.limits() == []


def test_a_limit_per_group_is_set_and_declared(app: Hawser):
    @app.task(group="customer", limit=Limit(running=2, rate="10/s", per_group=True))
    async def sync(customer: str) -> None: ...

    assert sync.options.limit == Limit(running=2, rate="10/s", per_group=True)
    app.set_limit(task="sync", running=1, per_group=True, ordered=True)
    [use] = app.limits()
    assert use.limit == Limit(running=1, per_group=True, ordered=True)
    assert use.set


@pytest.mark.parametrize(
    ("value", "told"),
    [("x" * 129, "128"), (1.5, "cannot be a group"), (True, "cannot be a group"), (["a"], "cannot be a group"), ("", "group")],
)
def test_a_group_that_cannot_be_one_is_refused_and_nothing_is_written(app: Hawser, value: object, told: str):
    @app.task(group="customer", limit=Limit(running=1, per_group=True))
    async def sync(customer: Any) -> None: ...

    with pytest.raises(InvalidJob, match=told) as refused:
        sync.enqueue(value)
    assert [fault.field for fault in refused.value.errors] == ["group"]
    assert app.stats().ready == 0


def test_a_parameter_that_does_not_exist_is_refused(app: Hawser):
    with pytest.raises(ConfigError, match="group: it has no parameter 'custmer'"):

        @app.task(group="custmer", limit=Limit(running=1, per_group=True))
        async def sync(customer: str) -> None: ...
