"""What a command works on: the app that was named, and its store, opened."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import reduce, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import click

from hawser.app import Hawser
from hawser.door import Door
from hawser.errors import ConfigError, HawserError, OutcomeUnknown, StoreUnavailable
from hawser.store import Store
from hawser.stores import make_store

P = ParamSpec("P")
T = TypeVar("T")

OPEN_WITHIN: Final = 30.0
"""Seconds until a store that does not open is given up."""


# The app.


def find_app(name: str) -> Hawser:
    """The app that `module:attribute`, `path/to/file.py:attribute` or `module` names; `ConfigError` says why there is none."""
    where, _, attribute = name.partition(":")
    if not where:
        raise ConfigError(f"app: {name!r} names no module; use for example shop.tasks:app")
    module = _import_file(Path(where)) if where.endswith(".py") or "/" in where else _import(where)
    return _attribute(module, where, attribute) if attribute else _only(module, where)


def _attribute(module: ModuleType, where: str, attribute: str) -> Hawser:
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise ConfigError(f"app: {where!r} has no {attribute!r}; {_offer(module, where)}") from None
    if not isinstance(found, Hawser):
        kind = type(found).__qualname__
        raise ConfigError(f"app: {where}:{attribute} is a {kind}, not a Hawser; {_offer(module, where)}")
    return found


def _only(module: ModuleType, where: str) -> Hawser:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    raise ConfigError(f"app: {where!r} does not have exactly one Hawser; {_offer(module, where)}")


def _apps(module: ModuleType) -> dict[str, Hawser]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Hawser)}


def _offer(module: ModuleType, where: str) -> str:
    if apps := _apps(module):
        return f"use {' or '.join(f'{where}:{name}' for name in apps)}"
    return "there is no Hawser in it: make one with app = Hawser(…), or name another module"


def _import_file(path: Path) -> ModuleType:
    """Import a file as the module that it is: within its packages, if it stands in any."""
    if not path.is_file():
        raise ConfigError(f"app: there is no file {str(path)!r}; name one that exists, or a module as in shop.tasks:app")
    path = path.resolve()
    folder, names = path.parent, [] if path.name == "__init__.py" else [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    _look_in(folder)
    module = _import(".".join(names))
    if Path(module.__file__ or "").resolve() != path:
        raise ConfigError(f"app: {str(path)!r} is hidden by another module called {module.__name__!r}; rename the file")
    return module


def _import(name: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"app: no module is called {error.name!r}, neither installed nor in {str(Path.cwd())!r}; "
                "go to the folder of your code, or check the name"
            ) from error
        raise ConfigError(
            f"app: {name!r} imports the module {error.name!r}, which is not installed for {sys.executable}; "
            "install it, or run hawser from the app's own environment"
        ) from error
    except HawserError as error:
        raise ConfigError(f"app: importing {name!r} failed: {error}") from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}{_place(error)}"
        raise ConfigError(f"app: importing {name!r} failed: {text}; --debug shows the traceback") from error


def _place(error: BaseException) -> str:
    """The last line of the traceback that is not the import machinery's."""
    if isinstance(error, SyntaxError):
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f", at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


# The store.


class Opened:
    """An app with its store open. Without a named app it has no tasks."""

    def __init__(self, app: Hawser, *, named: bool) -> None:
        self.app = app
        self.named = named
        """Whether the user said which app: only then its tasks, and what they ask for, are known."""
        self._connection = app._connection  # noqa: SLF001  # an app hands its store to nobody else

    @property
    def store(self) -> Store:
        return self._connection.store

    def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer of the store."""
        return self._connection.door.call(call)

    def _open(self) -> None:
        door = self._connection.door
        if door.inline:
            raise ConfigError("store: memory:// lives inside one process and cannot be reached from here; name another store")
        try:
            door.call(self._connection.ready(), OPEN_WITHIN)
        except OutcomeUnknown as error:
            raise StoreUnavailable(
                f"the store did not open within {OPEN_WITHIN:g} s: another process holds it; see which one, and try again"
            ) from error


@contextmanager
def opened(url: str | None, app: str | Hawser | None = None, *, create: bool = False) -> Iterator[Opened]:
    """The store of the URL, else of the app, else of $HAWSER_STORE, else the default file.

    Without `create` no new file is made: an operator who mistypes a name should hear of it.
    """
    if app is None:
        target = Opened(Hawser(url), named=False)
    else:
        target = Opened(find_app(app) if isinstance(app, str) else app, named=True)
        if url is not None:
            _move(target.app, url)
    if not create and (app is None or url is not None):
        must_exist(url, target.app.config.store)
    try:
        target._open()  # noqa: SLF001  # ours
        yield target
    except KeyboardInterrupt:
        # Closing waits for what is under way; whoever pressed Ctrl-C has waited long enough.
        raise
    except BaseException as error:
        if not isinstance(error, StoreUnavailable):
            target.app.close()
        raise
    target.app.close()


def _move(app: Hawser, url: str) -> None:
    """Give an app another store than its code says."""
    connection = app._connection  # noqa: SLF001  # as in Opened
    connection.store = make_store(url)
    connection.door = Door(connection.store)


def file_of(url: str) -> Path | None:
    """The file of a SQLite store, None for other stores."""
    parts = urlsplit(url)
    return Path(unquote(parts.path.removeprefix("/"))) if parts.scheme == "sqlite" else None


def must_exist(given: str | None, configured: str) -> None:
    """Refuse a SQLite store that is not there yet: the given one, else the configured one."""
    path = file_of(given or configured)
    if path is None or path.exists():
        return
    if given is None and not os.environ.get("HAWSER_STORE"):
        raise ConfigError(
            f"store: none was named and there is no {str(path)!r} here; use --store URL, --app APP or $HAWSER_STORE"
        )
    said = "--store" if given is not None else "HAWSER_STORE"
    raise StoreUnavailable(
        f"{said}: there is no file {str(path)!r}, seen from {str(Path.cwd())!r}; "
        "check the name, or make the store with: hawser migrate"
    )


# As options of a command.


def needs_store(command: Callable[Concatenate[Opened, P], T]) -> Callable[..., T]:
    """Give the command `--store` and `--app`, and call it with what they open."""

    @click.option("--app", metavar="APP", help="Use the store and tasks of this app: module:attribute or file.py:attribute.")
    @click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        url, app = kwargs.pop("url"), kwargs.pop("app")
        assert url is None or isinstance(url, str)
        assert app is None or isinstance(app, str)
        with opened(url, app) as target:
            return command(target, *args, **kwargs)

    return run


def needs_app(command: Callable[Concatenate[Opened, P], T]) -> Callable[..., T]:
    """Give the command the argument APP and `--store`, and call it with what they open; a store may be created."""

    @click.argument("app")
    @click.option("--store", "url", metavar="URL", help="Another store than the app's own.")
    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        url, app = kwargs.pop("url"), kwargs.pop("app")
        assert url is None or isinstance(url, str)
        assert isinstance(app, str)
        with opened(url, app, create=True) as target:
            return command(target, *args, **kwargs)

    return run
