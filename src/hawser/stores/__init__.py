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


def schema_of(url: str) -> Schema:
    """The schema in the store that the URL names; nothing is written."""
    # What is wrong with the URL shows before anything is touched.
    make_store(url)
    module = _module(url, SCHEMES)
    if not hasattr(module, "schema"):
        raise ConfigError(f"store: {without_password(url)!r} has no schema to migrate; only sqlite:// and postgresql:// have one")
    return cast("Schema", module.schema(url))


def is_there(url: str) -> bool:
    """Whether the store that the URL names was ever made; nothing is written. One without a schema needs no making."""
    make_store(url)
    module = _module(url, SCHEMES)
    return not hasattr(module, "schema") or cast("Schema", module.schema(url)).version > 0


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
