"""What a request says: its query and its body, read within limits."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from hawser.api.call import NoQuery
from hawser.api.decoding import misfit
from hawser.api.problem import Problem, bad
from hawser.api.response import Receive
from hawser.api.route import Route

_NO_QUERY: Final = NoQuery()


MAX_QUERY: Final = 8 * 1024


class HungUp(Exception):  # nothing is wrong with us
    """The caller left before it had said everything."""


def query_of(route: Route, text: bytes) -> Any:
    if not route.takes.has_query:
        if text:
            first = parse_qsl(text.decode("latin-1"), keep_blank_values=True)[:1]
            raise bad(first[0][0] if first else "query", "there is no such parameter; leave it out")
        return _NO_QUERY
    if len(text) > MAX_QUERY:
        raise Problem(400, f"the query is longer than {MAX_QUERY} bytes")
    given: dict[str, str | int] = {}
    seen: set[str] = set()
    for name, value in _pairs(route, text):
        if name in seen:
            raise bad(name, "given twice; leave one out")
        seen.add(name)
        if "\0" in value:
            raise bad(name, "the text has a NUL character; remove it")
        if value or name not in route.takes.query.__struct_fields__:  # an empty one was not filled in
            given[name] = int(value) if name in route.takes.numbers and re.fullmatch(r"-?[0-9]{1,16}", value) else value
    try:
        return msgspec.convert(given, route.takes.query)
    except msgspec.ValidationError as error:
        raise misfit(error, route.takes.query) from None


def _pairs(route: Route, text: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise Problem(400, "the query is not percent-encoded UTF-8") from None
    return [_argument(*pair) for pair in pairs] if "argument" in route.takes.query.__struct_fields__ else pairs


def _argument(name: str, value: str) -> tuple[str, str]:
    """`arg.user_id=42` is another way to write `argument=user_id=42`."""
    return ("argument", f"{name[4:]}={value}") if name.startswith("arg.") else (name, value)


async def read_body(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise HungUp
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(body) <= limit:
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        if size > limit:
            raise too_large(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > limit:
        raise too_large(limit)
    return b"".join(parts)


def too_large(limit: int) -> Problem:
    """The connection stays open: the server reads the rest of the body and drops it, for some seconds.

    To close at once would reset it while the caller still sends: the caller, or a proxy between, would not see this answer.
    """
    return Problem(413, f"the body is larger than {limit:,} bytes; send less at once")
