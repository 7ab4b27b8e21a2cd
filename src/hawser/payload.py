"""A task's arguments on their way to JSON and back, checked against the signature of its function."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec
from msgspec.inspect import CustomType, type_info

from hawser.errors import ConfigError, FieldError, InvalidJob, did_you_mean

MAX_PAYLOAD: Final = 64 * 1024
MAX_DEPTH: Final = 64
MAX_FAULTS: Final = 10
"""So many faults are named at once; a list of a million bad items is not a million lines."""

UNRESOLVED: Final = object()
"""What stands for an annotation whose names do not exist (yet)."""


class Parameters:
    """What a task takes, read from its function. Packs arguments into JSON and unpacks them for a run."""

    def __init__(self, task: str, fn: Callable[..., Any], *, skip_first: bool = False) -> None:
        self.task = task
        self._fn = fn
        parameters = signature_of(task, fn)[1 if skip_first else 0 :]
        self._positional: list[str] = []
        self._fields: dict[str, inspect.Parameter] = {}
        self.open = False
        """Whether the function takes **kwargs: then arguments that it does not name pass unchecked."""
        for parameter in parameters:
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    raise ConfigError(
                        f"task {task!r}: *{parameter.name} has no names to store arguments under; take a list instead"
                    )
                case inspect.Parameter.POSITIONAL_ONLY:
                    raise ConfigError(
                        f"task {task!r}: parameter {parameter.name!r} is positional-only; arguments are stored by name: "
                        "remove the '/' from the signature"
                    )
                case inspect.Parameter.VAR_KEYWORD:
                    self.open = True
                    continue
                case inspect.Parameter.POSITIONAL_OR_KEYWORD:
                    self._positional.append(parameter.name)
                case _:
                    pass
            self._fields[parameter.name] = parameter
        self._types: dict[str, Any] = {}
        self._decode: Callable[[bytes], Any] | None = None
        if not any(resolve(fn, parameter) is UNRESOLVED for parameter in self._fields.values()):
            self._compile()

    def takes(self, name: str) -> bool:
        """Whether an argument may have this name."""
        return self.open or name in self._fields

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int = MAX_PAYLOAD) -> bytes:
        """The arguments as JSON text of at most `limit` bytes; `InvalidJob` names every one that does not fit."""
        named = self._bind(args, kwargs) if args else kwargs
        decode = self._decode or self._compile()
        body = _encode("payload", named)
        if len(body) > limit:
            raise _too_large("payload", body, limit, ", or raise max_payload")
        if _looks_odd(body):
            _refuse_odd("payload", named)
        try:
            decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(body, error) from None
        return body

    def check(self, body: bytes, limit: int = MAX_PAYLOAD) -> None:
        """Check JSON text from elsewhere as `pack` would."""
        if len(body) > limit:
            raise _too_large("payload", body, limit, ", or raise max_payload")
        if _looks_odd(body):
            try:
                _refuse_odd("payload", msgspec.json.decode(body))
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._misfit(body, error) from None
        self.unpack(body)

    def unpack(self, body: bytes) -> dict[str, Any]:
        """The arguments for a run, with the types of the signature. What was not given is left to the function's defaults."""
        decode = self._decode or self._compile()
        try:
            values = decode(body)
            extra = msgspec.json.decode(body) if self.open else {}
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(body, error) from None
        given = {name: value for name in self._fields if (value := getattr(values, name)) is not msgspec.UNSET}
        return extra | given

    def schema(self) -> dict[str, Any]:
        """The arguments as JSON Schema; types that JSON Schema cannot describe may be anything."""
        self._decode or self._compile()
        fields = {name: _schema(kind) for name, kind in self._types.items()}
        needed = [name for name, parameter in self._fields.items() if parameter.default is parameter.empty]
        schema = {"type": "object", "properties": fields, "required": needed, "additionalProperties": self.open}
        # References are read from the root, so what they lead to has to stand there.
        named = {name: shape for field in fields.values() for name, shape in field.pop("$defs", {}).items()}
        return schema | {"$defs": named} if named else schema

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # inspect.Signature.bind costs 3 µs and more; names by position are all that is needed here.
        if len(args) > len(self._positional):
            takes = f"at most {len(self._positional)} ({', '.join(self._positional)})" if self._positional else "none"
            raise InvalidJob(FieldError("payload", f"{len(args)} arguments by position; task {self.task!r} takes {takes}"))
        named = dict(zip(self._positional, args))  # noqa: B905  # the length is judged above; the argument costs 0.2 µs
        if kwargs:
            twice = named.keys() & kwargs.keys()
            if twice:
                raise InvalidJob(*(_fault(name, "given by position and by name; leave one out") for name in sorted(twice)))
            named.update(kwargs)
        return named

    def _compile(self) -> Callable[[bytes], Any]:
        """Build the decoder; again and again until all names of the annotations exist."""
        types = {name: self._type(parameter) for name, parameter in self._fields.items()}
        # What was not given comes out as UNSET, so a default is the function's own object, not a copy through JSON.
        fields = [
            (name, types[name]) if parameter.default is parameter.empty else (name, types[name], msgspec.UNSET)
            for name, parameter in self._fields.items()
        ]
        shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=not self.open)
        self._types = types
        self._decode = msgspec.json.Decoder(shape, dec_hook=_restore).decode
        return self._decode

    def _type(self, parameter: inspect.Parameter) -> Any:
        where = f"task {self.task!r}: parameter {parameter.name!r}"
        kind = resolve(self._fn, parameter)
        if kind is UNRESOLVED:
            raise ConfigError(
                f"{where}: the annotation {parameter.annotation!r} names something that does not exist at run time; "
                "define it at module level and import it outside of `if TYPE_CHECKING`"
            )
        try:
            msgspec.json.Decoder(kind, dec_hook=_restore)
            foreign = [cls for cls in _custom_types(type_info(kind), set()) if not _restorable(cls)]
        except (TypeError, NameError) as error:
            raise ConfigError(f"{where}: {error}; annotate it more simply, or with Any for no check") from None
        if foreign:
            raise ConfigError(
                f"{where}: {foreign[0].__qualname__} cannot come back from JSON; use texts, numbers, lists, dicts, "
                "dataclasses, msgspec Structs or Pydantic models, or Any for no check"
            )
        return kind

    def _misfit(self, body: bytes, error: Exception) -> InvalidJob:
        """Why the text does not fit, argument by argument."""
        try:
            given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError as shape:
            return InvalidJob(FieldError("payload", f"{shape}; the arguments are one JSON object, by name"))
        except (msgspec.DecodeError, RecursionError):
            return InvalidJob(FieldError("payload", f"{error}; it is not JSON that can be read back"))
        faults = _first(self._field_faults(given))
        return InvalidJob(*(faults or [FieldError("payload", str(error))]))

    def _field_faults(self, given: Mapping[str, msgspec.Raw]) -> Iterator[FieldError]:
        for name, parameter in self._fields.items():
            if name in given:
                yield from self._type_faults(name, given[name])
            elif parameter.default is parameter.empty:
                yield _fault(name, f"missing; task {self.task!r} needs it: add {name}=…")
        if not self.open:
            for name in given.keys() - self._fields.keys():
                hint = did_you_mean(name, self._fields, f"it takes {', '.join(self._fields) or 'none'}")
                yield _fault(name, f"task {self.task!r} has no such argument; {hint}")

    def _type_faults(self, name: str, raw: msgspec.Raw) -> Iterator[FieldError]:
        try:
            msgspec.json.decode(raw, type=self._types[name], dec_hook=_restore)
        except (msgspec.DecodeError, RecursionError) as error:
            text, _, path = str(error).partition(" - at `$")
            declared = inspect.formatannotation(self._types[name])
            yield _fault(name + path.rstrip("`"), f"{text}; pass what the task declares: {name}: {declared}")


def signature_of(task: str, fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a task's function."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"task {task!r}: {fn!r} has no signature to check arguments against ({error})") from None


def resolve(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type that an annotation names: Any without an annotation, `UNRESOLVED` when it names what does not exist."""
    if parameter.annotation is parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    namespace = getattr(inspect.unwrap(fn), "__globals__", {})
    try:
        return get_type_hints(holder, namespace, include_extras=True)[parameter.name]
    except NameError:
        return UNRESOLVED
    except (TypeError, SyntaxError, AttributeError):
        # Let the decoder say what is wrong with it.
        return parameter.annotation


def is_object(body: bytes) -> bool:
    """Whether stored arguments can be read at all, whatever they are."""
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def to_json(field: str, value: Any, limit: int) -> bytes:
    """One value as JSON text, judged as an argument is; `InvalidJob` names the field."""
    body = _encode(field, value)
    if len(body) > limit:
        raise _too_large(field, body, limit)
    if _looks_odd(body):
        _refuse_odd(field, value)
    return body


def unchanged_json(field: str, value: Any, limit: int) -> bytes:
    """As `to_json`, but a value that would come back as another one, such as bytes or a tuple, is refused."""
    body = to_json(field, value, limit)
    if msgspec.json.decode(body) != value:
        raise InvalidJob(*_first(_changed(field, value)))
    return body


def check_json(field: str, body: bytes, limit: int) -> None:
    """Check JSON text from elsewhere as `to_json` checks a value."""
    if len(body) > limit:
        raise _too_large(field, body, limit)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob(FieldError(field, f"{error}; it is not JSON that can be read back")) from None
    if _looks_odd(body):
        _refuse_odd(field, value)


def _encode(field: str, value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except Exception as error:  # noqa: BLE001  # a model's own dump may raise anything
        raise InvalidJob(*_first(_unencodable(field, value, error))) from None


# What JSON cannot carry. `_looks_odd` reads only the bytes, so a good payload costs no walk through its values.

_DIGITS: Final = bytes(ord("0") if chr(i).isdigit() and i < 128 else ord(" ") for i in range(256))
_LONG: Final = b"0" * 19
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET: Final = bytes(i for i in range(256) if i not in b"[]{}")


def _looks_odd(body: bytes) -> bool:
    return (
        b"null" in body  # msgspec writes NaN and Infinity as null
        or b"\\u0000" in body
        or _LONG in body.translate(_DIGITS)  # 0.2 µs; a regular expression over 64 KiB takes 0.9 ms, this 0.07
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


def _refuse_odd(field: str, value: Any) -> None:
    plain = msgspec.to_builtins(value, enc_hook=_plain)
    if faults := _first(_odd(field, plain, 0)):
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
            yield FieldError(_argument(path), f"nested deeper than {MAX_DEPTH} levels; flatten it, or pass it as a text")
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


def _plain(value: Any) -> Any:
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


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def _schema(kind: Any) -> dict[str, Any]:
    try:
        return msgspec.json.schema(kind, schema_hook=lambda _: {})
    except TypeError:
        return {}


def _restorable(cls: type) -> bool:
    return cls is object or hasattr(cls, "model_validate")


def _restore(cls: type, value: Any) -> Any:
    return value if cls is object else cls.model_validate(value)  # type: ignore[attr-defined]  # Pydantic's, by duck type


def _custom_types(info: Any, seen: set[int]) -> Iterator[type]:
    """The types within a type that msgspec leaves to a hook."""
    if isinstance(info, CustomType):
        yield info.cls
    elif isinstance(info, (tuple, list)):
        for item in info:
            yield from _custom_types(item, seen)
    elif isinstance(info, msgspec.Struct) and id(info) not in seen and type(info).__module__ == "msgspec.inspect":
        seen.add(id(info))
        for name in info.__struct_fields__:
            yield from _custom_types(getattr(info, name), seen)


def _fault(name: str, message: str) -> FieldError:
    return FieldError(f"payload.{name}", message)


def _first(faults: Iterator[FieldError]) -> list[FieldError]:
    return [FieldError(_printable(fault.field), fault.message) for fault in islice(faults, MAX_FAULTS)]


def _argument(path: str) -> str:
    """The argument that a path leads into: payload.rows of payload.rows[3].name."""
    return ".".join(re.split(r"[.\[]", path, maxsplit=2)[:2])


def _printable(path: str) -> str:
    """A path holds the sender's keys and goes into logs and answers: no control characters, no longer than a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path[:200])


def _too_large(field: str, body: bytes, limit: int, way_out: str = "") -> InvalidJob:
    text = f"{len(body):,} bytes of JSON; at most {limit:,}: keep the data elsewhere and pass its id{way_out}"
    return InvalidJob(FieldError(field, text))
