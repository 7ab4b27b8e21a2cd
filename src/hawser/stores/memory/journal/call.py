"""Calls of a store as bytes: the method, its arguments, the time, and a digest of the answer."""

from __future__ import annotations

import inspect
import typing
import zlib
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import msgspec

from hawser.stores.memory.store import MemoryStore

T = TypeVar("T")

READS: Final = frozenset(
    (
        "api_keys",
        "asked_to_stop",
        "audit",
        "awaiting",
        "batch",
        "batches",
        "breakers",
        "bulk",
        "bulks",
        "dead_groups",
        "dead_letters",
        "due_schedules",
        "next_schedules",
        "ended",
        "event",
        "event_counts",
        "failovers",
        "find",
        "get",
        "group_wait",
        "holders",
        "lanes",
        "task_depths",
        "times",
        "limits",
        "live_batches",
        "made",
        "output",
        "pauses",
        "policies",
        "queues",
        "rollups",
        "schedules",
        "stats",
        "steps",
        "waits",
        "workers",
    )
)
"""Methods that change nothing which a later call could tell. All others are written to the log."""

OUTSIDE: Final = frozenset(("open", "close", "wait", "go_on"))
"""Methods that are neither: they begin, end and wait, or make a call that is written only where there is something to do."""


class LoggedCall(msgspec.Struct, array_like=True, gc=False):
    """A call as the log has it."""

    now: int
    """The store's clock, which stands still during the call."""
    latest: int
    """What the clock said when it was last read before: tells whether it was set back."""
    method: str
    arguments: bytes
    digest: int
    """Of the answer. Making the call again must give the same one."""


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"the journal has no form for {type(value).__name__}")


encode: Final = msgspec.msgpack.Encoder(enc_hook=_as_dict).encode
decode_calls: Final = msgspec.msgpack.Decoder(list[LoggedCall]).decode

_digested: Final = msgspec.msgpack.Encoder(enc_hook=repr).encode


def digest_of(answer: object) -> int:
    """The same for the same answer, in every process."""
    if isinstance(answer, BaseException):
        return zlib.crc32(f"{type(answer).__name__}: {answer}".encode())
    return zlib.crc32(_digested(answer))


def run(coro: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never suspends returns."""
    try:
        coro.send(None)
    except StopIteration as ended:
        return typing.cast("T", ended.value)
    finally:
        coro.close()
    raise RuntimeError("a call of the memory store has suspended")


def logged_methods() -> dict[str, Any]:
    """The methods of the memory store whose calls are written, by name."""
    return {
        name: method
        for name, method in inspect.getmembers(MemoryStore, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in READS and name not in OUTSIDE
    }


class Arguments:
    """The arguments of one method as bytes, and back, by the types that its signature gives."""

    def __init__(self, method: Any) -> None:
        self._signature = inspect.signature(method)
        hints = typing.get_type_hints(method, vars(inspect.getmodule(method)))
        taken = [each for each in self._signature.parameters.values() if each.name != "self"]
        fields = [
            (each.name, hints[each.name]) if each.default is each.empty else (each.name, hints[each.name], each.default)
            for each in taken
        ]
        self._type = msgspec.defstruct(method.__name__, fields, array_like=True)
        self._decode = msgspec.msgpack.Decoder(self._type).decode

    def encode(self, given: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """What is left out at the end is left out, and has its default when the call is made again."""
        if not named:
            return encode(given)
        bound = self._signature.bind(None, *given, **named)
        bound.apply_defaults()
        return encode(tuple(bound.arguments.values())[1:])

    def decode(self, data: bytes) -> tuple[Any, ...]:
        return msgspec.structs.astuple(self._decode(data))
