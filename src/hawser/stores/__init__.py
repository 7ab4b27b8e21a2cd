"""Which store a URL names. Each store's module is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from hawser.clock import Clock, SystemClock
from hawser.errors import ConfigError, MissingExtra, UnknownStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hawser.store import Store


class Scheme(NamedTuple):
    """Where a store is built, and the extra that brings what it imports."""

    module: str
    extra: str | None = None


SCHEMES: Mapping[str, Scheme] = {
    "memory": Scheme("hawser.stores.memory"),
    "sqlite": Scheme("hawser.stores.sqlite"),
    "postgresql": Scheme("hawser.stores.postgres", extra="postgres"),
    "postgres": Scheme("hawser.stores.postgres", extra="postgres"),
}


def make_store(url: str, *, clock: Clock | None = None, schemes: Mapping[str, Scheme] = SCHEMES) -> Store:
    """The store that the URL names, not yet open."""
    if not isinstance(url, str) or "://" not in url:
        raise ConfigError(f"store: {url!r} is not a URL; use for example sqlite:///jobs.db or memory://")
    name = urlsplit(url).scheme
    scheme = schemes.get(name)
    if scheme is None:
        known = ", ".join(f"{known}://" for known in schemes)
        raise UnknownStore(f"store: no store is called {name!r}; this version has {known}")
    try:
        module = importlib.import_module(scheme.module)
    except ModuleNotFoundError as error:
        if scheme.extra is None:
            raise
        raise MissingExtra(
            f"store: {name}:// needs the package {error.name!r}; install it with: pip install 'hawser[{scheme.extra}]'"
        ) from error
    return cast("Store", module.from_url(url, clock or SystemClock()))
