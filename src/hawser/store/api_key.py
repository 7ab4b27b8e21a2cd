"""Who acts, and who may do what over HTTP: actors, roles, and API keys as a store keeps them."""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

KEY_PREFIX: Final = "hawser"
"""What every key begins with, so that scanners for leaked secrets can find one."""

SESSION_PREFIX: Final = "dashboard session of "
"""How the names of the keys begin that stand for sessions of browsers."""

DEFAULT_RATE: Final = 1_000.0
MAX_KEY_RATE: Final = 1_000_000.0

_ID: Final = 6
_SECRET_BYTES: Final = 20
"""Random bytes in a key's public and in its secret part: 160 bits need no slow hash."""


class Role(StrEnum):
    """What a key is for."""

    PRODUCER = "producer"
    """Enqueues, and sees the jobs of its tasks."""
    WORKER = "worker"
    """Claims, settles and extends."""
    VIEWER = "viewer"
    """Looks at everything but the audit."""
    OPERATOR = "operator"
    """Looks and acts."""
    ADMIN = "admin"
    """All of it."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret."""

    id: str
    """Its public part: what it is called in lists and audit records."""
    name: str
    """The service that has it. Two keys may have one name, so that one can be replaced by the other."""
    hash: str
    """SHA-256 of the whole key."""
    roles: tuple[Role, ...]
    tasks: tuple[str, ...] | None = None
    """The tasks that it may enqueue; None is all of them."""
    queues: tuple[str, ...] | None = None
    """The queues that it may enqueue into and claim from; None is all of them."""
    rate: float = DEFAULT_RATE
    """Requests a second that each server takes with it; each job that it enqueues counts as one."""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its times."""

    key: ApiKey
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None
    """When it was last used, to a minute or so."""
    live: bool
    """Neither revoked nor expired, by the store's clock."""


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and why; goes into the audit record with the action itself."""

    by: str = "app"
    reason: str | None = None
    filter: Mapping[str, str] | None = None
    """What chose the jobs, in an action on all that match; of a limit, what was set."""
    operation: str | None = None
    """The bulk action that this one is a part of."""


class Issued(NamedTuple):
    """A new key, and its text, which is shown once and kept nowhere."""

    key: ApiKey
    text: str


def issue(
    name: str,
    roles: tuple[Role, ...],
    *,
    tasks: tuple[str, ...] | None = None,
    queues: tuple[str, ...] | None = None,
    rate: float = DEFAULT_RATE,
) -> Issued:
    """Make a key: `hawser_PUBLIC_SECRETCHECK`."""
    id = secrets.token_hex(_ID)
    bare = f"{KEY_PREFIX}_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    text = bare + _check(bare)
    return Issued(ApiKey(id=id, name=name, hash=hash_of(text), roles=roles, tasks=tasks, queues=queues, rate=rate), text)


def id_of(text: str) -> str | None:
    """The public part of a key's text; None when it cannot be a key, so that a typing error costs no look-up."""
    bare, check = text[:-8], text[-8:]
    parts = bare.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == KEY_PREFIX and bare.isascii() and _check(bare) == check else None


def session_name(id: str) -> str:
    """What the key of a browser's session is called, by the key that logged in: the session lives no longer than that key."""
    return f"{SESSION_PREFIX}{id}"


def is_session_name(name: str) -> bool:
    return name.startswith(SESSION_PREFIX)


def parent_of(name: str) -> str:
    """The id of the key that logged in."""
    return name.removeprefix(SESSION_PREFIX)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check(bare: str) -> str:
    return f"{zlib.crc32(bare.encode()):08x}"


class KeyStore(Protocol):
    """What the HTTP server needs to admit callers. Keys are kept by their hashes, never by their texts."""

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        """Keep a new key, which expires after so many seconds, or never; putting it again changes nothing."""

    async def api_keys(self) -> list[KeyRecord]:
        """All keys, oldest first, the expired and revoked ones too."""

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        """End a key at once; False, and no record, when there is none or it was revoked before."""

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        """Note that these keys were used now."""
