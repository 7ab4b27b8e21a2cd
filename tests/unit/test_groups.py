"""Whose job it is: the group of a task's jobs, from an argument, from a function, or named."""

import uuid

import pytest

from hawser import Hawser
from hawser.errors import ConfigError, InvalidJob
from hawser.job import new_job


@pytest.fixture
def app():
    with Hawser("memory://") as app:
        yield app


def test_a_group_is_the_value_of_a_parameter(app):
    @app.task(group="customer")
    def sync(customer: str, full: bool = False) -> None: ...

    assert sync.job("acme").group == "acme"
    assert sync.job(customer="b", full=True).group == "b"
    assert sync.job_from_json(b'{"customer": "c"}', {}).group == "c"
    assert sync.job_from_json(b'{"customer": "c"}', {"priority": 9}).group == "c"
    assert sync.job_from_json(b'{"customer": "c"}', {"group": "d"}).group == "d"
    assert app.get(sync.enqueue("acme").id).group == "acme"


def test_a_default_counts_and_none_is_no_group(app):
    @app.task(group="customer")
    def sync(customer: int | None = 7) -> None: ...

    assert sync.job().group == "7"
    assert sync.job(None).group is None


def test_a_group_may_be_a_function_of_the_arguments(app):
    @app.task(group=lambda arguments: f"{arguments['region']}/{arguments['shop']}")
    def sync(region: str, shop: int) -> None: ...

    assert sync.job("eu", 4).group == "eu/4"


def test_a_group_may_be_named_for_one_job(app):
    @app.task(group="customer")
    def sync(customer: str) -> None: ...

    @app.task
    def plain() -> None: ...

    assert sync.using(group="special").job("acme").group == "special"
    assert sync.using(group=None).job("acme").group is None
    assert sync.using(priority=9).job("acme").group == "acme"
    assert plain.using(group="acme").job().group == "acme"
    assert plain.job().group is None


def test_a_whole_number_and_a_uuid_are_texts(app):
    @app.task(group="customer")
    def sync(customer: uuid.UUID | int) -> None: ...

    id = uuid.uuid4()
    assert sync.job(12).group == "12"
    assert sync.job(id).group == str(id)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5, "1.5 of type float cannot be a group; use a text, a whole number or a UUID"),
        (True, "True of type bool cannot be a group"),
        (["a"], "of type list cannot be a group"),
        ("", "a text of 0 characters; use 1 to 128"),
        ("x" * 129, "a text of 129 characters; use 1 to 128"),
    ],
)
def test_what_cannot_be_a_group_is_refused_before_anything_is_written(app, value, said):
    @app.task(group="customer")
    def sync(customer) -> None: ...

    with pytest.raises(InvalidJob, match="group") as refused:
        sync.enqueue(value)
    assert said in str(refused.value)
    assert app.stats().ready == 0


def test_a_function_that_fails_is_named(app):
    @app.task(group=lambda arguments: arguments["nothing"])
    def sync(customer: str) -> None: ...

    with pytest.raises(InvalidJob, match="group: the function of task 'sync' failed: KeyError: 'nothing'"):
        sync.enqueue("acme")


def test_a_parameter_that_does_not_exist_is_refused_at_once(app):
    with pytest.raises(ConfigError, match="task 'sync': group: it has no parameter 'custmer'; did you mean 'customer'"):

        @app.task(group="custmer")
        def sync(customer: str) -> None: ...


def test_a_group_that_is_no_name_is_refused_at_once(app):
    with pytest.raises(ConfigError, match="task 'sync': group: 5 is not the name of a parameter"):

        @app.task(group=5)
        def sync(customer: str) -> None: ...


@pytest.mark.parametrize("group", ["x" * 129, "", 5, "a\0"])
def test_a_named_group_is_checked(group):
    with pytest.raises(InvalidJob, match="group"):
        new_job(task="work", body=b"{}", group=group)


@pytest.mark.parametrize("weight", [0, -1, 1001, 1.5, True, "3"])
def test_a_weight_is_a_whole_number(app, weight):
    with pytest.raises(ConfigError, match=r"weight: .* is not a whole number from 1 to 1,000"):
        app.set_weight(queue="default", group="acme", weight=weight)


def test_weights_are_set_and_listed(app):
    app.set_weight(queue="default", group="acme", weight=3)
    assert [(each.queue, each.group, each.weight) for each in app.weights("default")] == [("default", "acme", 3)]
    with pytest.raises(ConfigError, match="group: a text of 0 characters"):
        app.set_weight(queue="default", group="", weight=3)


def test_jobs_of_a_group_are_found(app):
    @app.task
    def work() -> None: ...

    handle = work.using(group="acme").enqueue()
    work.using(group="other").enqueue()
    assert [job.id for job in app.find(group="acme").jobs] == [handle.id]
    assert [job.id for job in app.find(group_name="acme").jobs] == [handle.id]
    with pytest.raises(ConfigError, match="group: a text of 129 characters"):
        app.find(group="x" * 129)
