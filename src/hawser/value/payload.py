"""A task's arguments on their way to JSON and back, checked against the signature of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec
from msgspec.inspect import CustomType, type_info

from hawser.errors import ConfigError, FieldError, InvalidJob, did_you_mean
from hawser.value.json_value import encode, fault, first_faults, looks_odd, refuse_odd, too_large

MAX_PAYLOAD: Final = 64 * 1024
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
        self.secret: frozenset[str] = frozenset()
        """Arguments that no fault quotes."""
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
        self._optional = any(parameter.default is not parameter.empty for parameter in self._fields.values())
        self._types: dict[str, Any] = {}
        self._decode: Callable[[bytes], Any] | None = None
        if not any(resolve(fn, parameter) is UNRESOLVED for parameter in self._fields.values()):
            self._compile()

    def takes(self, name: str) -> bool:
        """Whether an argument may have this name."""
        return self.open or name in self._fields

    @property
    def names(self) -> list[str]:
        """The parameters."""
        return list(self._fields)

    def with_defaults(self, body: bytes) -> dict[str, Any]:
        """The arguments of a run, those that were not given with the function's defaults."""
        defaults = {name: each.default for name, each in self._fields.items() if each.default is not each.empty}
        return defaults | self.unpack(body)

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int = MAX_PAYLOAD) -> bytes:
        """The arguments as JSON text of at most `limit` bytes; `InvalidJob` names every one that does not fit."""
        named = self._bind(args, kwargs) if args else kwargs
        decode = self._decode or self._compile()
        body = encode("payload", named)
        if len(body) > limit:
            raise too_large("payload", body, limit, ", or raise max_payload")
        if looks_odd(body):
            refuse_odd("payload", named)
        try:
            decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(body, error) from None
        return body

    def check(self, body: bytes, limit: int = MAX_PAYLOAD) -> None:
        """Check JSON text from elsewhere as `pack` would."""
        if len(body) > limit:
            raise too_large("payload", body, limit, ", or raise max_payload")
        if looks_odd(body):
            try:
                refuse_odd("payload", msgspec.json.decode(body))
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._misfit(body, error) from None
        self.unpack(body)

    def unpack(self, body: bytes) -> dict[str, Any]:
        """The arguments for a run, with the types of the signature. What was not given is left to the function's defaults."""
        decode = self._decode or self._compile()
        try:
            given = msgspec.structs.asdict(decode(body))
            extra = msgspec.json.decode(body) if self.open else None
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(body, error) from None
        if self._optional:
            given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        return given if extra is None else extra | given

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
                raise InvalidJob(*(fault(name, "given by position and by name; leave one out") for name in sorted(twice)))
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
        faults = first_faults(self._field_faults(given))
        return InvalidJob(*(faults or [FieldError("payload", str(error))]))

    def _field_faults(self, given: Mapping[str, msgspec.Raw]) -> Iterator[FieldError]:
        for name, parameter in self._fields.items():
            if name in given:
                yield from self._type_faults(name, given[name])
            elif parameter.default is parameter.empty:
                yield fault(name, f"missing; task {self.task!r} needs it: add {name}=…")
        if not self.open:
            for name in given.keys() - self._fields.keys():
                hint = did_you_mean(name, self._fields, f"it takes {', '.join(self._fields) or 'none'}")
                yield fault(name, f"task {self.task!r} has no such argument; {hint}")

    def _type_faults(self, name: str, raw: msgspec.Raw) -> Iterator[FieldError]:
        try:
            msgspec.json.decode(raw, type=self._types[name], dec_hook=_restore)
        except (msgspec.DecodeError, RecursionError) as error:
            text, _, path = str(error).partition(" - at `$")
            declared = inspect.formatannotation(self._types[name])
            if name in self.secret:
                text, path = "a value that does not fit, and that is not shown", ""
            yield fault(name + path.rstrip("`"), f"{text}; pass what the task declares: {name}: {declared}")


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
    """Whether stored arguments can be read at all, of any type."""
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


# What JSON cannot carry. `looks_odd` reads only the bytes, so a good payload costs no walk through its values.


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
