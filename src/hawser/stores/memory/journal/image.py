"""The state of a memory store as bytes, and back.

An image is data, not code: it names only classes of Hawser, and loading it makes objects of them and calls nothing else. A new
store is filled with it, so what cannot be written (locks, callbacks, factories of defaults) stays as the new store has it.
"""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from itertools import count
from typing import Any, Final

import msgspec

from hawser.errors import StoreUnavailable
from hawser.stores.memory.store import MemoryStore

FORMAT: Final = 1

PARTS: Final = "hawser.stores."
"""Where the classes stand whose objects are parts of a store: they may be shared and point at each other."""

VALUES: Final = "hawser."
"""Where the classes of values stand."""

PLAIN_TYPES: Final = (str, bytes, int, float, bool, type(None))

OF_THE_PROCESS: Final = frozenset(("watch", "_clock", "_lock", "_bell"))
"""Attributes of the store itself that belong to the process."""


class ImageWriter:
    """Turns a store into nested lists. A list begins with a letter that says what it stands for."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []
        """The objects that `_known` names: none may be freed while its address is used as a name."""

    def store(self, store: MemoryStore) -> bytes:
        parts = {name: self.value(part) for name, part in vars(store).items() if name not in OF_THE_PROCESS and _written(part)}
        return msgspec.msgpack.encode([FORMAT, store.watch.state(), parts])

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN_TYPES:
            return value
        if kind is tuple:
            return ["t", *map(self.value, value)]
        if kind in (list, deque, set, frozenset):
            return [{list: "l", deque: "q", set: "s", frozenset: "f"}[kind], *map(self.value, value)]
        if isinstance(value, dict):
            return ["d", *(self.value(each) for item in value.items() for each in item)]
        if isinstance(value, datetime):
            return ["w", value.isoformat()]
        if kind is count:
            return ["c", int(repr(value).removeprefix("count(")[:-1])]  # to pickle one is deprecated from Python 3.12 on
        return self._object(value, kind)

    def _object(self, value: Any, kind: type) -> Any:
        name = f"{kind.__module__}:{kind.__qualname__}"
        if isinstance(value, Enum):
            return ["e", name, value.name]
        if isinstance(value, msgspec.Struct):
            return ["v", name, {field: self.value(getattr(value, field)) for field in value.__struct_fields__}]
        if isinstance(value, tuple):
            return ["n", name, *map(self.value, value)]
        if not kind.__module__.startswith(PARTS):
            raise TypeError(f"the image of a store has no form for {name}")
        if (number := self._known.get(id(value))) is not None:
            return ["r", number]
        self._known[id(value)] = number = len(self._kept)
        self._kept.append(value)
        return ["o", number, name, {field: self.value(part) for field, part in _attributes(value) if _written(part)}]


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield name, getattr(value, name)
    yield from getattr(value, "__dict__", {}).items()


def _written(part: Any) -> bool:
    return not callable(part)


class ImageReader:
    """Fills a new store from what `ImageWriter` made of another."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def fill(self, store: MemoryStore, data: bytes) -> None:
        version, watch, parts = msgspec.msgpack.decode(data)
        if version != FORMAT:
            raise other_version(f"an image of format {version}, and this version reads format {FORMAT}")
        store.watch.restore(*watch)
        for name, part in parts.items():
            setattr(store, name, self.value(part, getattr(store, name, None)))

    def value(self, data: Any, there: Any = None) -> Any:
        """`there` is what the new store has in that place."""
        if not isinstance(data, list):
            return data
        match data:
            case ["t", *rest]:
                return tuple(map(self.value, rest))
            case ["l", *rest]:
                return list(map(self.value, rest))
            case ["s", *rest]:
                return set(map(self.value, rest))
            case ["f", *rest]:
                return frozenset(map(self.value, rest))
            case ["q", *rest]:
                return deque(map(self.value, rest), maxlen=there.maxlen if isinstance(there, deque) else None)
            case ["d", *rest]:
                return self._dict(rest, there)
            case ["w", text]:
                return datetime.fromisoformat(text)
            case ["c", number]:
                return count(number)
            case _:
                return self._object(data, there)

    def _object(self, data: list[Any], there: Any) -> Any:
        match data:
            case ["e", name, member]:
                return _class(name, VALUES)[member]
            case ["v", name, fields]:
                return _class(name, VALUES)(**{field: self.value(part) for field, part in fields.items()})
            case ["n", name, *rest]:
                return _class(name, VALUES)(*map(self.value, rest))
            case ["o", number, name, fields]:
                return self._part(number, name, fields, there)
            case ["r", number]:
                return self._objects[number]
            case _:
                raise other_version(f"an image with {str(data)[:40]!r}")

    def _dict(self, rest: list[Any], there: Any) -> dict[Any, Any]:
        """A dict that makes its defaults keeps the way in which it makes them."""
        filled: dict[Any, Any] = there if isinstance(there, (defaultdict, Counter)) else {}
        filled.clear()
        make: Callable[[], Any] = getattr(filled, "default_factory", None) or (lambda: None)
        for key, part in zip(rest[::2], rest[1::2], strict=True):
            filled[self.value(key)] = self.value(part, make())
        return filled

    def _part(self, number: int, name: str, fields: dict[str, Any], there: Any) -> Any:
        kind = _class(name, PARTS)
        part = there if type(there) is kind else kind.__new__(kind)
        self._objects[number] = part
        known = getattr(kind, "__slots__", None)
        if part is not there and known is not None and set(known) != fields.keys():
            raise other_version(f"an image in which {name} has other fields")
        for field, value in fields.items():
            setattr(part, field, self.value(value, getattr(part, field, None)))
        return part


def other_version(what: str) -> StoreUnavailable:
    """The error when files of a journal were written by a version that did things differently."""
    return StoreUnavailable(
        f"the journal has {what}; open it with the version of Hawser that wrote it, and let it finish its jobs before the upgrade"
    )


def _class(name: str, within: str) -> Any:
    module, _, path = name.partition(":")
    if not module.startswith(within):
        raise StoreUnavailable(f"the image names {name!r}, which is not a part of Hawser; restore the folder from a copy")
    try:
        found: Any = importlib.import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError) as error:
        raise other_version(f"an image with {name}, which this version does not have") from error
    return found
