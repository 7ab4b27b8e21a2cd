"""Arguments to JSON and back."""

from __future__ import annotations

import enum
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Self

import msgspec
import pytest

from hawser.errors import ConfigError, InvalidJob
from hawser.value.json_value import MAX_DEPTH, to_json
from hawser.value.payload import Parameters

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


@dataclass
class Point:
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Order(msgspec.Struct):
    id: int
    points: list[Point] = []


class Model:
    """Has Pydantic's two methods, which is all that is asked of a model."""

    def __init__(self, name: str) -> None:
        self.name = name

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"name": self.name}

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError("name: Input should be a valid string")
        return cls(value["name"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


class Opaque:
    pass


class Title(str):
    __slots__ = ()


UserId = NewType("UserId", int)


def send(to: str, template: str = "welcome", *, copies: int = 1) -> None: ...


def anything(value: Any = None) -> None: ...


SEND = Parameters("send", send)
ANYTHING = Parameters("anything", anything)


def fault_of(parameters: Parameters, *args: Any, **kwargs: Any) -> tuple[str, str]:
    with pytest.raises(InvalidJob) as caught:
        parameters.pack(args, kwargs)
    [error] = caught.value.errors
    return error


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_arguments_are_stored_by_name_however_they_were_given():
    assert SEND.pack(("a",), {}) == b'{"to":"a"}'
    assert SEND.pack((), {"to": "a"}) == b'{"to":"a"}'
    assert SEND.pack(("a", "b"), {"copies": 2}) == b'{"to":"a","template":"b","copies":2}'


def test_a_default_is_left_to_the_function():
    marker = object()

    def task(a: int, b: Any = marker) -> None: ...

    parameters = Parameters("task", task)
    assert parameters.unpack(parameters.pack((1,), {})) == {"a": 1}


@pytest.mark.parametrize(
    ("args", "kwargs", "field", "text"),
    [
        ((), {}, "payload.to", "missing; task 'send' needs it: add to=…"),
        ((1,), {}, "payload.to", "Expected `str`, got `int`; pass what the task declares: to: str"),
        (("a",), {"templat": "x"}, "payload.templat", "task 'send' has no such argument; did you mean 'template'?"),
        (("a",), {"zzz": 1}, "payload.zzz", "task 'send' has no such argument; it takes to, template, copies"),
        (("a", "b", "c"), {}, "payload", "3 arguments by position; task 'send' takes at most 2 (to, template)"),
        (("a",), {"to": "b"}, "payload.to", "given by position and by name; leave one out"),
        (("a",), {"copies": True}, "payload.copies", "Expected `int`, got `bool`; pass what the task declares: copies: int"),
        (("a",), {"copies": 1.0}, "payload.copies", "Expected `int`, got `float`; pass what the task declares: copies: int"),
        (("a",), {"copies": None}, "payload.copies", "Expected `int`, got `null`; pass what the task declares: copies: int"),
    ],
)
def test_what_does_not_fit_is_named(args, kwargs, field, text):
    assert fault_of(SEND, *args, **kwargs) == (field, text)


def test_every_fault_is_named_at_once():
    with pytest.raises(InvalidJob) as caught:
        SEND.pack((), {"template": 1, "copies": "x", "zzz": 1})
    assert [error.field for error in caught.value.errors] == [
        "payload.to",
        "payload.template",
        "payload.copies",
        "payload.zzz",
    ]


def test_a_fault_deep_in_a_value_is_named_by_its_path():
    def task(order: Order) -> None: ...

    parameters = Parameters("task", task)
    order = {"id": 1, "points": [{"x": 1, "y": 2}, {"x": 1, "y": "2"}]}
    field, text = fault_of(parameters, order)
    assert field == "payload.order.points[1].y"
    assert text.startswith("Expected `int`, got `str`")


@pytest.mark.parametrize(
    ("value", "path", "word"),
    [
        (math.nan, "payload.value", "nan is not a JSON number"),
        (-math.inf, "payload.value", "-inf is not a JSON number"),
        ({"a": [1, {"b": math.inf}]}, "payload.value.a[1].b", "inf is not a JSON number"),
        ([None, math.nan], "payload.value[1]", "nan is not a JSON number"),
        ("a\0b", "payload.value", "NUL"),
        ({"a\0": 1}, "payload.value", "NUL"),
        ([{"a": "\0"}], "payload.value[0].a", "NUL"),
        ("\ud800", "payload.value", "lone surrogate"),
        (["", {"k": "x\udfff"}], "payload.value[1].k", "lone surrogate"),
        ({"\ud800": 1}, "payload.value", "lone surrogate"),
        (2**64, "payload.value", "beyond 64 bits"),
        ([-(2**63) - 1], "payload.value[0]", "beyond 64 bits"),
        ({"a": 10**400}, "payload.value.a", "beyond 64 bits"),
        (object(), "payload.value", "a `object` cannot be written as JSON"),
        ([1, {"b": Opaque()}], "payload.value[1].b", "a `Opaque` cannot be written as JSON"),
        ((x for x in [1]), "payload.value", "a `generator` cannot"),
        ({(1, 2): 3}, "payload.value", "keys of type tuple; JSON keys are texts"),
        ({"a": {None: 3}}, "payload.value.a", "keys of type NoneType"),
        (nested(MAX_DEPTH), "payload.value", "nested deeper than 64 levels"),
        (nested(500), "payload.value", "nested deeper than 64 levels"),
        (nested(50_000), "payload.value", "nested deeper than 64 levels"),
        ({"a": "]" * 100, "b": nested(100)}, "payload.value", "nested deeper than 64 levels"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_path(value, path, word):
    field, text = fault_of(ANYTHING, value)
    assert field == path
    assert word in text


def test_a_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    field, text = fault_of(ANYTHING, value)
    assert field == "payload.value"
    assert "contains itself" in text


def test_a_nan_inside_a_dataclass_or_a_model_is_found():
    @dataclass
    class Measure:
        degrees: float

    assert fault_of(ANYTHING, [Measure(math.nan)])[0] == "payload.value[0].degrees"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [None, {"a": None}],
        "null",
        "\\u0000",
        "12345678901234567890123",
        2**64 - 1,
        -(2**63),
        1e300,
        nested(MAX_DEPTH - 1),
        [[] for _ in range(500)],
        "[[[[{{{{" * 40,
        "]" * 200,
        "é中\U0001f600",
        {},
        True,
    ],
)
def test_what_only_looks_odd_passes(value):
    assert ANYTHING.unpack(ANYTHING.pack((value,), {})) == {"value": value}


def test_a_million_faults_are_not_a_million_lines():
    with pytest.raises(InvalidJob) as caught:
        ANYTHING.pack(([object()] * 1000,), {})
    assert len(caught.value.errors) == 10


def test_a_path_with_control_characters_is_made_printable():
    field, _ = fault_of(ANYTHING, {"a\nb": math.nan})
    assert field == "payload.value.a\\nb"


def test_size_is_counted_in_bytes_of_json():
    assert len(SEND.pack(("a" * 100,), {}, limit=109)) == 109
    with pytest.raises(InvalidJob) as caught:
        SEND.pack(("a" * 101,), {}, limit=109)
    [error] = caught.value.errors
    assert error.field == "payload"
    assert error.message == "110 bytes of JSON; at most 109: keep the data elsewhere and pass its id, or raise max_payload"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
        (date, date(2026, 1, 2)),
        (timedelta, timedelta(seconds=90)),
        (uuid.UUID, uuid.uuid4()),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (dict[int, str], {1: "a"}),
        (Colour, Colour.RED),
        (Literal["a", "b"], "b"),
        (Point, Point(1, 2)),
        (Order, Order(1, [Point(3, 4)])),
        (list[Point] | None, [Point(1, 2)]),
        (UserId, 7),
        (float, 1),
        (object, [1]),
        (list[object], [1, "a"]),
        (Model, Model("ada")),
        (list[Model], [Model("ada")]),
    ],
)
def test_typed_values_come_back_as_what_they_were(kind, value):
    def task(value): ...

    task.__annotations__["value"] = kind
    parameters = Parameters("task", task)
    assert parameters.unpack(parameters.pack((value,), {})) == {"value": value}


def test_a_model_says_itself_what_is_wrong():
    def task(user: Model) -> None: ...

    field, text = fault_of(Parameters("task", task), {"name": 1})
    assert field == "payload.user"
    assert text.startswith("name: Input should be a valid string")


def test_a_model_that_cannot_be_dumped_is_named():
    class Broken(Model):
        def model_dump(self, *, mode: str) -> dict[str, Any]:
            raise RuntimeError("no way")

    field, text = fault_of(ANYTHING, [Broken("x")])
    assert field == "payload.value[0]"
    assert "no way" in text


def test_a_model_in_a_value_needs_no_annotation():
    assert ANYTHING.pack((Model("ada"),), {}) == b'{"value":{"name":"ada"}}'


def test_subclasses_of_plain_types_pass():
    class Stamp(datetime):
        pass

    assert ANYTHING.pack((Title("x"),), {}) == b'{"value":"x"}'
    assert ANYTHING.pack((Stamp(2026, 1, 2),), {}) == b'{"value":"2026-01-02T00:00:00"}'


def test_constraints_of_annotations_hold():
    def task(n: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    field, text = fault_of(Parameters("task", task), 0)
    assert field == "payload.n"
    assert "Expected `int` >= 1" in text


def test_open_keywords_pass_unchecked_but_not_what_json_cannot_carry():
    def task(a: int, **more: int) -> None: ...

    parameters = Parameters("task", task)
    assert parameters.unpack(parameters.pack((1,), {"b": "x", "c": [2]})) == {"a": 1, "b": "x", "c": [2]}
    assert fault_of(parameters, 1, b=math.nan)[0] == "payload.b"
    assert fault_of(parameters, "1", b=2)[0] == "payload.a"


def test_a_context_is_no_part_of_the_payload():
    def task(ctx: Any, a: int) -> None: ...

    parameters = Parameters("task", task, skip_first=True)
    assert parameters.pack((1,), {}) == b'{"a":1}'
    assert fault_of(parameters, 1, ctx=2)[0] == "payload.ctx"


def test_star_arguments_are_refused_at_registration():
    def task(a: int, *rest: int) -> None: ...

    with pytest.raises(ConfigError, match=r"task 'task': \*rest has no names .* take a list instead"):
        Parameters("task", task)


def test_positional_only_parameters_are_refused_at_registration():
    def task(a: int, /) -> None: ...

    with pytest.raises(ConfigError, match="task 'task': parameter 'a' is positional-only"):
        Parameters("task", task)


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], dict[str, Opaque] | None, type, str | datetime])
def test_a_type_that_cannot_come_back_is_refused_at_registration(kind):
    def task(value): ...

    task.__annotations__["value"] = kind
    with pytest.raises(ConfigError, match="task 'task': parameter 'value': "):
        Parameters("task", task)


def test_an_annotation_that_does_not_exist_is_an_error_at_first_use_only():
    def task(value: Missing) -> None: ...

    parameters = Parameters("task", task)  # it may be defined further down in its module
    with pytest.raises(ConfigError, match="parameter 'value': the annotation 'Missing' names something that does not exist"):
        parameters.pack((1,), {})


def test_an_annotation_that_is_defined_later_is_found():
    def task(value: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    parameters = Parameters("task", task)
    globals()["Later"] = int
    try:
        assert parameters.pack((1,), {}) == b'{"value":1}'
    finally:
        del globals()["Later"]


def test_what_a_worker_reads_is_checked_again():
    with pytest.raises(InvalidJob, match=r"payload\.to: Expected `str`, got `int`"):
        SEND.unpack(b'{"to":1}')
    with pytest.raises(InvalidJob, match=r"payload\.to: missing"):
        SEND.unpack(b"{}")
    with pytest.raises(InvalidJob, match=r"payload: Expected `object`, got `array`"):
        SEND.unpack(b"[]")
    with pytest.raises(InvalidJob, match=r"payload: .*not JSON that can be read"):
        SEND.unpack(b"{nonsense")


@pytest.mark.parametrize(
    "body", [b'{"value":"\\u0000"}', b'{"value":[18446744073709551616]}', b'{"value":' + b"[" * 64 + b"]" * 64 + b"}"]
)
def test_json_of_others_is_judged_like_ours(body):
    with pytest.raises(InvalidJob, match=r"payload\.value"):
        ANYTHING.check(body)


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b'{"value":NaN}', b'{"value":"\\ud800"}', b"[" * 100_000, b'{"value":' + b"[" * 30_000]
)
def test_what_is_not_json_is_refused(body):
    with pytest.raises(InvalidJob, match="payload"):
        ANYTHING.check(body, limit=1_000_000)


def test_one_value_is_judged_like_an_argument():
    assert to_json("progress", {"a": [1, None]}, 100) == b'{"a":[1,null]}'
    for value, word in ((math.nan, "progress: nan"), ({"a": "\0"}, r"progress\.a: .*NUL"), ("x" * 99, "progress: 101 bytes")):
        with pytest.raises(InvalidJob, match=word):
            to_json("progress", value, 100)
