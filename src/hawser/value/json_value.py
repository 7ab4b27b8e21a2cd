"""A value on its way to JSON: refused, with the place of the fault, when it would not come back as it was."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from typing import Any, Final

import msgspec

from hawser.errors import FieldError, InvalidJob

MAX_DEPTH: Final = 64


MAX_FAULTS: Final = 10
"""So many faults are named at once; a list of a million bad items is not a million lines."""


def to_json(field: str, value: Any, limit: int) -> bytes:
    """One value as JSON text, judged as an argument is; `InvalidJob` names the field."""
    body = encode(field, value)
    if len(body) > limit:
        raise too_large(field, body, limit)
    if looks_odd(body):
        refuse_odd(field, value)
    return body


def unchanged_json(field: str, value: Any, limit: int) -> bytes:
    """As `to_json`, but a value that would come back as another one, such as bytes or a tuple, is refused."""
    body = to_json(field, value, limit)
    if msgspec.json.decode(body) != value:
        raise InvalidJob(*first_faults(_changed(field, value)))
    return body


def check_json(field: str, body: bytes, limit: int) -> None:
    """Check JSON text from elsewhere as `to_json` checks a value."""
    if len(body) > limit:
        raise too_large(field, body, limit)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob(FieldError(field, f"{error}; it is not JSON that can be read back")) from None
    if looks_odd(body):
        refuse_odd(field, value)


def encode(field: str, value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except Exception as error:  # noqa: BLE001  # a model's own dump may raise anything
        raise InvalidJob(*first_faults(_unencodable(field, value, error))) from None


_ONLY_DIGITS: Final = bytes(ord("0") if chr(i).isdigit() and i < 128 else ord(" ") for i in range(256))


_LONG: Final = b"0" * 19


_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")


_NO_BRACKET: Final = bytes(i for i in range(256) if i not in b"[]{}")


def looks_odd(body: bytes) -> bool:
    return (
        b"null" in body  # msgspec writes NaN and Infinity as null
        or b"\\u0000" in body
        or _LONG in body.translate(_ONLY_DIGITS)  # 0.2 µs; a regular expression over 64 KiB takes 0.9 ms, this 0.07
        or (len(body) > 2 * MAX_DEPTH and body.count(b"[") + body.count(b"{") > MAX_DEPTH and _looks_deep(body))
    )


def _looks_deep(body: bytes) -> bool:
    """Peel one level of brackets a turn. Brackets in texts may mislead it; then the walk decides."""
    rest = body.translate(_BRACKETS, _NO_BRACKET)
    for _ in range(MAX_DEPTH):
        rest = rest.replace(b"[]", b"")
        if not rest:
            return False
    return True


def refuse_odd(field: str, value: Any) -> None:
    built = msgspec.to_builtins(value, enc_hook=plain)
    if faults := first_faults(_odd(field, built, 0)):
        raise InvalidJob(*faults)


def _odd(path: str, value: Any, depth: int) -> Iterator[FieldError]:
    match value:
        case float() if not math.isfinite(value):
            yield FieldError(path, f"{value} is not a JSON number; pass None or a text instead")
        case int() if not -(2**63) <= value < 2**64:
            yield FieldError(path, "a whole number beyond 64 bits; pass it as a text")
        case str() if "\0" in value:
            yield FieldError(path, "the text has a NUL character; remove it")
        case dict() | list() | tuple() | set() | frozenset() if depth >= MAX_DEPTH:
            yield FieldError(argument_of(path), f"nested deeper than {MAX_DEPTH} levels; flatten it, or pass it as a text")
        case dict():
            for key, item in value.items():
                yield from _odd(path, key, depth)
                yield from _odd(f"{path}.{key}", item, depth + 1)
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(value):
                yield from _odd(f"{path}[{index}]", item, depth + 1)
        case _:
            pass


def _changed(path: str, value: Any) -> Iterator[FieldError]:
    """Where in the value something stands that does not come back from JSON as it was."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _changed(f"{path}.{key}", item)
            else:
                yield FieldError(path, f"the key {key!r} is a `{type(key).__qualname__}`; JSON keys are texts: use str(key)")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _changed(f"{path}[{index}]", item)
    elif msgspec.json.decode(_encoder.encode(value)) != value:
        kind = type(value).__qualname__
        yield FieldError(path, f"a `{kind}` does not come back from JSON as it was; {_INSTEAD.get(kind, _PLAIN_VALUES)}")


_PLAIN_VALUES: Final = "pass texts, numbers, True, False, None, lists and dicts"


_INSTEAD: Final = {
    "bytes": "pass a text, for example base64.b64encode(data).decode(), or keep the data elsewhere and pass its id",
    "tuple": "pass a list",
    "set": "pass a sorted list",
    "frozenset": "pass a sorted list",
    "datetime": "pass its isoformat()",
    "date": "pass its isoformat()",
    "Decimal": "pass str(value)",
    "UUID": "pass str(value)",
}


def _unencodable(path: str, value: Any, error: Exception) -> Iterator[FieldError]:
    """Where in the value the fault lies that made its encoding fail."""
    found = False
    if isinstance(value, Mapping):
        items: Iterable[tuple[str, Any]] = ((f"{path}.{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        items = ()
    if not (isinstance(error, RecursionError) and path.count(".")):
        for where, item in items:
            try:
                _encoder.encode(item)
            except Exception as cause:  # noqa: BLE001  # a model's own dump may raise anything
                found = True
                yield from _unencodable(where, item, cause)
    if not found:
        yield FieldError(path, _why(value, error))


def _why(value: Any, error: Exception) -> str:
    match error:
        case RecursionError():
            return f"it contains itself or is nested deeper than {MAX_DEPTH} levels; flatten it, or pass an id instead"
        case UnicodeEncodeError():
            return "the text has a lone surrogate; it is not valid Unicode: clean it, or pass it as bytes"
        case TypeError() if isinstance(value, Mapping):
            keys = sorted({type(key).__qualname__ for key in value} - {"str", "int", "float"})
            return f"keys of type {', '.join(keys)}; JSON keys are texts: use str keys, or a list of pairs"
        case _:
            kind = type(value).__qualname__
            return f"a `{kind}` cannot be written as JSON ({error}); pass texts, numbers, lists, dicts or dataclasses"


def plain(value: Any) -> Any:
    """What msgspec does not know by itself: Pydantic models, subclasses of plain types, JSON text in a walk."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise TypeError("no JSON form is known")


_encoder: Final = msgspec.json.Encoder(enc_hook=plain)


def fault(name: str, message: str) -> FieldError:
    return FieldError(f"payload.{name}", message)


def first_faults(faults: Iterator[FieldError]) -> list[FieldError]:
    return [FieldError(printable(fault.field), fault.message) for fault in islice(faults, MAX_FAULTS)]


def argument_of(path: str) -> str:
    """The argument that a path leads into: payload.rows of payload.rows[3].name."""
    return ".".join(re.split(r"[.\[]", path, maxsplit=2)[:2])


def printable(path: str) -> str:
    """A path holds the sender's keys and goes into logs and answers: no control characters, no longer than a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path[:200])


def too_large(field: str, body: bytes, limit: int, way_out: str = "") -> InvalidJob:
    text = f"{len(body):,} bytes of JSON; at most {limit:,}: keep the data elsewhere and pass its id{way_out}"
    return InvalidJob(FieldError(field, text))
