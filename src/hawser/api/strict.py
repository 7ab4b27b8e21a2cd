"""Reading JSON from strangers: what two readers could understand differently is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.inspect import CollectionType, EnumType, LiteralType, StructType, Type, UnionType, type_info

from hawser.api.problem import Problem, bad
from hawser.errors import FieldError

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
    unknown = "Object contains unknown field `"
    if message.startswith(unknown):
        field = f"{field}." * bool(field) + message.removeprefix(unknown).rstrip("`")
        return bad(field, "there is no such field; leave it out")
    missing = "Object missing required field `"
    if message.startswith(missing):
        field = f"{field}." * bool(field) + message.removeprefix(missing).rstrip("`")
        return bad(field, "missing; it is needed")
    wrong = "Invalid enum value "
    if message.startswith(wrong) and (known := list(_choices(type_info(kind), field.split(".") if field else []))):
        message = f"{message.removeprefix(wrong)} is none; known are {', '.join(known)}"
    if not field:
        return Problem(400, message, FieldError("body", message))
    return bad(field, message)


def _choices(kind: Type, path: Sequence[str]) -> Iterator[str]:
    """What may stand at a place of which msgspec says that it takes only some values."""
    match kind:
        case UnionType():
            for each in kind.types:
                yield from _choices(each, path)
        case CollectionType():
            yield from _choices(kind.item_type, path)
        case StructType() if path:
            for field in kind.fields:
                if field.encode_name == path[0]:
                    yield from _choices(field.type, path[1:])
        case EnumType() if not path:
            yield from (str(member.value) for member in kind.cls)
        case LiteralType() if not path:
            yield from map(str, kind.values)
