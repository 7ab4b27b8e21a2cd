"""Which store a URL names. Each store's module is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, cast

from hawser.clock import Clock, SystemClock
from hawser.errors import ConfigError, MissingExtra, UnknownStore, install
from hawser.stores.url import split, without_password

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from hawser.store import Store
    from hawser.stores.schema import Schema


class Scheme(NamedTuple):
    """Where a store is built, and the extra that brings what it imports."""

    module: str
    extra: str | None = None


SCHEMES: Mapping[str, Scheme] = {
    "memory": Scheme("hawser.stores.memory"),
    "sqlite": Scheme("hawser.stores.sqlite"),
    "postgresql": Scheme("hawser.stores.postgres", extra="postgres"),
    "postgres": Scheme("hawser.stores.postgres", extra="postgres"),
    "redis": Scheme("hawser.stores.redis", extra="redis"),
    "rediss": Scheme("hawser.stores.redis", extra="redis"),
    "unix": Scheme("hawser.stores.redis", extra="redis"),
}


def make_store(url: str, *, clock: Clock | None = None, schemes: Mapping[str, Scheme] = SCHEMES) -> Store:
    """The store that the URL names, not yet open."""
    return cast("Store", _module(url, schemes).from_url(url, clock or SystemClock()))


def schema_of(url: str) -> Schema | None:
    """The schema in the store that the URL names, None for a kind of store that has none; nothing is written."""
    # What is wrong with the URL shows before anything is touched.
    make_store(url)
    module = _module(url, SCHEMES)
    return cast("Schema", module.schema(url)) if hasattr(module, "schema") else None


def missing_rights(url: str) -> list[str]:
    """What the role that the URL names may not do in its store, in words, where stores have roles. Nothing is written."""
    make_store(url)
    module = _module(url, SCHEMES)
    return cast("list[str]", module.missing_rights(url)) if hasattr(module, "missing_rights") else []


def sizes_of(url: str) -> dict[str, int]:
    """How many bytes the store that the URL names takes, by part, where its kind can tell. Nothing is written."""
    make_store(url)
    module = _module(url, SCHEMES)
    return cast("dict[str, int]", module.sizes(url)) if hasattr(module, "sizes") else {}


def is_there(url: str) -> bool:
    """Whether the store that the URL names was ever made; nothing is written. One without a schema needs no making."""
    schema = schema_of(url)
    return schema is None or schema.version > 0


def _module(url: str, schemes: Mapping[str, Scheme]) -> ModuleType:
    """Where the store that the URL names is built."""
    if not isinstance(url, str) or "://" not in url:
        raise ConfigError(f"store: {without_password(str(url))!r} is not a URL; use for example sqlite:///jobs.db or memory://")
    name = split(url).scheme
    scheme = schemes.get(name)
    if scheme is None:
        family = name.partition("+")[0]
        if family in schemes:
            # As SQLAlchemy writes it.
            raise UnknownStore(f"store: {name}:// names a driver, which Hawser chooses itself; write {family}://")
        known = ", ".join(f"{known}://" for known in schemes)
        raise UnknownStore(f"store: no store is called {name!r}; this version has {known}")
    try:
        return importlib.import_module(scheme.module)
    except ModuleNotFoundError as error:
        if scheme.extra is None:
            raise
        raise MissingExtra(f"store: {name}:// needs the package {error.name!r}; {install(scheme.extra)}") from error
