"""What a command works on: the app that was named, and its store, opened."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import click

from hawser.app import Hawser
from hawser.cli import show
from hawser.client.app_loader import find_app
from hawser.client.portal import Portal
from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.job import Job
from hawser.redaction import shown
from hawser.stores import is_there
from hawser.stores.url import without_password

P = ParamSpec("P")
T = TypeVar("T")

OPEN_WITHIN: Final = 30.0
"""Seconds until a store that does not open is given up."""


# The store.


class Opened:
    """An app with its store open. Without a named app it has no tasks."""

    def __init__(self, app: Hawser, *, named: bool) -> None:
        self.app = app
        self.named = named
        """Whether the user said which app: only then its tasks, and what they ask for, are known."""
        self._portal = Portal()
        try:
            self.store = self._portal.call(app.store(), OPEN_WITHIN)
        except OutcomeUnknown as error:
            raise StoreUnavailable(
                f"the store did not open within {OPEN_WITHIN:g} s: another process holds it; see which one, and try again"
            ) from error
        if getattr(self.store, "inline", False):
            raise ConfigError("store: memory:// lives inside one process and cannot be reached from here; name another store")

    def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer of the store."""
        return self._portal.call(call)

    def shown(self, job: Job) -> Job:
        """The job as people see it, as far as the app is known: without it nothing says what is to be redacted."""
        return shown(self.app.tasks, job)

    def close(self) -> None:
        self.app.close()
        self._portal.close()


@contextmanager
def opened(url: str | None, app: str | None = None, *, create: bool = False) -> Iterator[Opened]:
    """The store of the URL, else of the app, else of $HAWSER_STORE, else the default file.

    Without `create` nothing new is made: an operator who mistypes a name should hear of it.
    """
    found = _app_of(url, app)
    if not create:
        must_exist(found, url, app)
    with _open(found, named=app is not None) as target:
        yield target


@contextmanager
def made(url: str | None, app: str | None) -> Iterator[Opened]:
    """As `opened`, but a store that was named and is not there yet is made, and standard error says so."""
    found = _app_of(url, app)
    if is_nameless(url or app):
        must_exist(found, url, app)
    missing = found.store_url is not None and not is_there(found.store_url)
    with _open(found, named=app is not None) as target:
        if missing:
            show.note(f"made the store {without_password(found.config.store)!r}: it was not there yet")
        yield target


def store_url_of(url: str | None, app: str | None) -> str | None:
    """The store that a command is to work on, before it is opened."""
    return _app_of(url, app).store_url


def _app_of(url: str | None, app: str | None) -> Hawser:
    if app is None:
        return Hawser(url)
    found = find_app(app)
    if url is not None:
        found.use_store(url)
    return found


@contextmanager
def _open(app: Hawser, *, named: bool) -> Iterator[Opened]:
    target = Opened(app, named=named)
    try:
        yield target
    except KeyboardInterrupt:
        # Closing waits for what is under way; after Ctrl-C it is not waited for.
        raise
    except BaseException:
        target.close()
        raise
    target.close()


def must_exist(app: Hawser, given: str | None, spec: str | None = None) -> None:
    """Refuse a store that was never made: the one that was given, else that of the app that `spec` names."""
    url = app.store_url
    if url is None or is_there(url):
        return
    if is_nameless(given or spec):
        raise ConfigError(
            f"store: none was named and there is no {str(file_of(url))!r} here; use --store URL, --app APP or $HAWSER_STORE"
        )
    said = "--store" if given is not None else "--app" if spec is not None else "HAWSER_STORE"
    path = file_of(url)
    if path is None or path.exists():
        missing = f"there is no store of Hawser in {without_password(url)!r}"
    else:
        missing = f"there is no file {str(path)!r}, seen from {str(Path.cwd())!r}"
    remedy = "start a worker" if said == "--app" else "check the name"
    raise ConfigError(f"{said}: {missing}; {remedy}, or make the store with: {migration_of(url)}")


def is_nameless(given: str | None) -> bool:
    """Whether no store was named, so that it is the default file of this folder."""
    return given is None and not os.environ.get("HAWSER_STORE")


def file_of(url: str) -> Path | None:
    """The file of a SQLite store, None for other stores."""
    parts = urlsplit(url)
    return Path(unquote(parts.path.removeprefix("/"))) if parts.scheme == "sqlite" else None


def migration_of(url: str) -> str:
    """The command that makes the store, to be copied; without the password."""
    return f"hawser migrate --store {shlex.quote(without_password(url))}"


# As options of a command.


def needs_store(command: Callable[Concatenate[Opened, P], T]) -> Callable[..., T]:
    """Give the command `--store` and `--app`, and call it with what they open."""
    return _with_store(command, opened)


def makes_store(command: Callable[Concatenate[Opened, P], T]) -> Callable[..., T]:
    """As `needs_store`, for a command that may be the first one of a store."""
    return _with_store(command, made)


def _with_store(
    command: Callable[Concatenate[Opened, P], T], opens: Callable[[str | None, str | None], AbstractContextManager[Opened]]
) -> Callable[..., T]:
    @click.option("--app", metavar="APP", help="Use the store and tasks of this app: module:attribute or file.py:attribute.")
    @click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        url, app = kwargs.pop("url"), kwargs.pop("app")
        assert url is None or isinstance(url, str)
        assert app is None or isinstance(app, str)
        with opens(url, app) as target:
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
