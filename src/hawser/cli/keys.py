"""`hawser keys`: who may use the HTTP API."""

from __future__ import annotations

from typing import Any

import click

from hawser.cli import options, show
from hawser.cli.format import ago, now
from hawser.cli.group import CommandFailed, Listing
from hawser.cli.opened_app import Opened, makes_store, needs_store
from hawser.cli.show import TableColumn
from hawser.cli.when import duration
from hawser.errors import did_you_mean
from hawser.store.api_key import DEFAULT_RATE, MAX_KEY_RATE, KeyRecord, Role, is_session_name, issue
from hawser.value.name import name_fault, text_fault

_KEY_COLUMNS = (
    TableColumn("id", whole=True),
    TableColumn("name"),
    TableColumn("roles", whole=True),
    TableColumn("tasks", flexible=True, drop=3),
    TableColumn("queues", flexible=True, drop=3),
    TableColumn("rate", right=True, drop=2),
    TableColumn("state", whole=True),
    TableColumn("used", whole=True, drop=1),
)


def service(text: str) -> str:
    """The name of the service that gets a key; it stands in audit records."""
    if fault := text_fault(text.strip(), 64):
        raise click.BadParameter(fault)
    if is_session_name(text.strip()):
        raise click.BadParameter("keys of this name are made when a browser logs in; choose another")
    return text.strip()


def task(text: str) -> str:
    if fault := name_fault(text):
        raise click.BadParameter(fault)
    return text


def queues(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(dict.fromkeys(task(name.strip()) for name in text.split(",")))


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_KEY_RATE:
        raise click.BadParameter(f"{text!r} is not a number above 0 and up to {MAX_KEY_RATE:g}")
    return value


@click.group(cls=Listing)
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command()
@click.argument("name", type=service)
@click.option(
    "--role", "roles", type=click.Choice([role.value for role in Role]), multiple=True, required=True, help="May be repeated."
)
@click.option(
    "--task", "tasks", type=task, multiple=True, metavar="NAME", help="A task that it may enqueue; all when none is named."
)
@click.option(
    "--queues",
    type=queues,
    metavar="LIST",
    help="Queues that it may enqueue into and claim from: mail,bulk. All when none is named.",
)
@click.option(
    "--rate",
    type=rate,
    default=f"{DEFAULT_RATE:g}",
    show_default=True,
    metavar="N",
    help="Requests and jobs a second, per server.",
)
@click.option("--expires", type=duration, metavar="TIME", help="End by itself after so long: 90d, 12h.")
@options.reason
@options.as_json
@makes_store
def create(
    target: Opened,
    /,
    *,
    name: str,
    roles: tuple[str, ...],
    tasks: tuple[str, ...],
    queues: tuple[str, ...] | None,
    rate: float,
    expires: float | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Make a key for the service NAME. It is shown once, here, and kept only as a hash.

    To replace a key make a second one, bring it to the service, then revoke the first: both are good meanwhile.
    The store is made when it is named, by --store, --app or $HAWSER_STORE, and is not there yet.
    """
    if target.named:
        for unknown in (task for task in tasks if task not in target.app.tasks):
            show.note(
                f"warning: the app has no task {unknown!r}; {did_you_mean(unknown, target.app.tasks, 'is the name right?')}"
            )
    key, text = issue(name, tuple(dict.fromkeys(Role(role) for role in roles)), tasks=tasks or None, queues=queues, rate=rate)
    target.ask(target.store.put_api_key(key, expires, options.actor(reason)))
    if as_json:
        show.document({"id": key.id, "key": text})
        return
    show.say(text)
    show.note(f"key {key.id} for {name}: keep it now, it is not shown again")


@keys.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List the keys, without their secrets."""
    records = target.ask(target.store.api_keys())
    if as_json:
        show.document({"keys": [_as_json(record) for record in records]})
        return
    if not records:
        show.note("no keys; make one with: hawser keys create NAME --role producer")
        return
    at = now()
    rows = [
        [
            record.key.id,
            record.key.name,
            ",".join(record.key.roles),
            "all" if record.key.tasks is None else ",".join(record.key.tasks),
            "all" if record.key.queues is None else ",".join(record.key.queues),
            f"{record.key.rate:g}",
            _state(record),
            "never" if record.used_at is None else ago(record.used_at, at),
        ]
        for record in records
    ]
    show.table(_KEY_COLUMNS, rows)


def _state(record: KeyRecord) -> str:
    if record.live:
        return "live"
    return "revoked" if record.revoked_at is not None else "expired"


def _as_json(record: KeyRecord) -> dict[str, Any]:
    key = record.key
    return {
        "id": key.id,
        "name": key.name,
        "roles": key.roles,
        "tasks": key.tasks,
        "queues": key.queues,
        "rate": key.rate,
        "state": _state(record),
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
        "used_at": record.used_at,
    }


@keys.command()
@click.argument("id")
@options.reason
@needs_store
def revoke(target: Opened, /, *, id: str, reason: str | None) -> None:
    """End a key at once: every server refuses it within a second."""
    if not target.ask(target.store.revoke_api_key(id.strip().lower(), options.actor(reason))):
        raise CommandFailed(f"no live key is called {id!r}; hawser keys lists them")
    show.say(f"{id}  revoked")
