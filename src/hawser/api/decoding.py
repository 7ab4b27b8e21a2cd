"""Reading JSON from unknown callers: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.inspect import CollectionType, EnumType, LiteralType, StructType, Type, UnionType, type_info

from hawser.api.problem import Problem, bad
from hawser.errors import FieldError, did_you_mean

T = TypeVar("T")


class _Ambiguous(ValueError):
    """Valid to some readers, not to all."""


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add is None
        raise _Ambiguous(f"the key {twice!r} stands twice in one object; leave one out")


def _no_constant(name: str) -> NoReturn:
    raise _Ambiguous(f"{name} is not JSON; send null or a text")


_look = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant).decode
"""Only looks. msgspec, which reads, takes the last of two equal keys; and it skips over what is kept as it came."""


def read(body: bytes, decode: Callable[[bytes], T], kind: Any) -> T:
    """The body as its type; a `Problem` names the field that does not fit."""
    try:
        _look(body.decode())
        return decode(body)
    except msgspec.ValidationError as error:
        raise misfit(error, kind) from None
    except RecursionError:
        raise Problem(400, "the body is nested too deeply; flatten it") from None
    except UnicodeDecodeError:
        raise Problem(400, "the body is not UTF-8") from None
    except ValueError as error:
        raise Problem(400, f"the body is not JSON that can be taken: {error}") from None


def misfit(error: msgspec.ValidationError, kind: Any) -> Problem:
    """What msgspec says of a value that does not fit its type, `kind`."""
    message, _, path = str(error).partition(" - at `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    place = re.sub(r"\[\d+\]", "", field).split(".") if field else []
    unknown = "Object contains unknown field `"
    if message.startswith(unknown):
        name = message.removeprefix(unknown).rstrip("`")
        known = list(_fields(type_info(kind), place))
        # A caller's own field is best left out; a list of all that is known would hide that.
        return bad(f"{field}." * bool(field) + name, f"there is no such field; {did_you_mean(name, known, 'leave it out')}")
    missing = "Object missing required field `"
    if message.startswith(missing):
        field = f"{field}." * bool(field) + message.removeprefix(missing).rstrip("`")
        return bad(field, "missing; it is needed")
    wrong = "Invalid enum value "
    if message.startswith(wrong) and (known := list(_choices(type_info(kind), place))):
        message = f"{message.removeprefix(wrong)} is not one of them; known are {', '.join(known)}"
    if not field:
        return Problem(400, message, FieldError("body", message))
    return bad(field, message)


def _fields(kind: Type, path: Sequence[str]) -> Iterator[str]:
    """The names of the fields that an object at a place may have."""
    for found in _at(kind, path):
        if isinstance(found, StructType):
            yield from (field.encode_name for field in found.fields)


def _choices(kind: Type, path: Sequence[str]) -> Iterator[str]:
    """What may stand at a place of which msgspec says that it takes only some values."""
    for found in _at(kind, path):
        if isinstance(found, EnumType):
            yield from (str(member.value) for member in found.cls)
        elif isinstance(found, LiteralType):
            yield from map(str, found.values)


def _at(kind: Type, path: Sequence[str]) -> Iterator[Type]:
    """The types that may stand at a place; items of a collection stand where it stands."""
    match kind:
        case UnionType():
            for each in kind.types:
                yield from _at(each, path)
        case CollectionType():
            yield from _at(kind.item_type, path)
        case StructType() if path:
            for field in kind.fields:
                if field.encode_name == path[0]:
                    yield from _at(field.type, path[1:])
        case _ if not path:
            yield kind
        case _:
            pass
