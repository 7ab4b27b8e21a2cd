"""`/me` and `/session`: who looks at the dashboard, and a key turned into a cookie that a browser sends by itself."""

from __future__ import annotations

from typing import Any, Final

from hawser.api.bodies import Out
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.identity import COOKIE, bearer_of
from hawser.api.openapi import version
from hawser.api.problem import Problem
from hawser.store.api_key import Actor, Role, issue, session_name

SESSION_LASTS_S: Final = 12 * 3600.0
"""Seconds after which a browser has to log in again."""


class MeOut(Out):
    """Who asks, as the server sees it."""

    name: str
    roles: list[Role]
    read_only: bool
    """This server changes nothing, for any role."""
    session: bool
    """It came in by a cookie of `POST /session`."""
    version: str


class SessionOut(Out):
    """The browser has the session in a cookie now, for so many seconds."""

    name: str
    roles: list[Role]
    seconds: float


class SessionEnded(Out):
    """`ended` is false when the caller had no session."""

    ended: bool


async def me(call: Call[NoBody, NoQuery]) -> Answer:
    """Who asks, and what it may do."""
    identity = call.identity
    return Answer(
        MeOut(
            name=identity.name,
            roles=sorted(identity.roles),
            read_only=call.api.options.read_only,
            session=identity.session,
            version=version(),
        )
    )


async def log_in(call: Call[NoBody, NoQuery]) -> Answer:
    """Turn the key of this request into a cookie for a browser, with the rights of the key and for as long as it lives."""
    given = call.headers.get(b"authorization")
    text = None if given is None else bearer_of(given)
    identity = call.identity
    if text is None:
        raise Problem(400, "send the key as Authorization: Bearer KEY; a caller that needs no key needs no session")
    if identity.session:
        raise Problem(400, "this is a session already; log in with the key itself")
    if identity.keyed:
        # A key of its own, so that ending the session ends nothing else, and the key itself is kept in no browser.
        key, text = issue(
            session_name(identity.id), tuple(identity.roles), tasks=_some(identity.tasks), queues=_some(identity.queues)
        )
        await call.store.put_api_key(key, SESSION_LASTS_S, Actor(identity.name, "log in to the dashboard"))
    answer = SessionOut(name=identity.name, roles=sorted(identity.roles), seconds=SESSION_LASTS_S)
    return Answer(answer, 201, (_cookie(call, text, SESSION_LASTS_S),))


async def log_out(call: Call[NoBody, NoQuery]) -> Answer:
    """End the session of this request."""
    ended = call.identity.session
    if ended and call.identity.keyed:
        await call.store.revoke_api_key(call.identity.id, Actor(call.identity.name, "log out of the dashboard"))
        call.api.gate.forget(call.identity)
    return Answer(SessionEnded(ended=ended), headers=(_cookie(call, "", 0.0),))


def _cookie(call: Call[Any, Any], value: str, seconds: float) -> tuple[bytes, bytes]:
    """No `Path`: by itself it is where this API is mounted, also behind a prefix that we do not know."""
    public = call.api.options.public_url or f"{call.scope.get('scheme')}:"
    secure = "; Secure" if public.startswith("https:") else ""
    return b"set-cookie", f"{COOKIE}={value}; HttpOnly; SameSite=Strict; Max-Age={seconds:.0f}{secure}".encode()


def _some(names: frozenset[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))
