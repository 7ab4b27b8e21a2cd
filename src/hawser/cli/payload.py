"""JSON on the command line."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import click
import msgspec

from hawser.cli.format import clean
from hawser.value.json_value import MAX_DEPTH

_EXAMPLE: Final = """'{"name": "value"}'"""
_MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes that are read from stdin; no payload may be so large."""
_TOO_DEEP: Final = "it is nested too deeply; flatten it"
_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(r"[\[\]{}]")


def json_object(text: str) -> dict[str, Any]:
    """The arguments of a task by name; `-` reads them from stdin."""
    found = json_value(text)
    if not isinstance(found, dict):
        kind = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(found), "a number")
        raise click.BadParameter(f"it is {kind}; the arguments are one JSON object, by name: {_EXAMPLE}")
    return found


def json_value(text: str) -> Any:
    """Any JSON; `-` reads it from stdin."""
    if text == "-":
        text = sys.stdin.buffer.read(_MOST_BYTES).decode(errors="surrogateescape")
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if _depth(text) > MAX_DEPTH:
            raise click.BadParameter(_TOO_DEEP) from None
        raise click.BadParameter(f"{_place(text, error)}; write it as {_EXAMPLE}, in single quotes for the shell") from None
    except RecursionError:
        raise click.BadParameter(_TOO_DEEP) from None
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"it is not valid UTF-8 at character {error.start + 1}") from None


def _depth(text: str) -> int:
    """How deep its brackets go, those inside of texts left out."""
    depth = deepest = 0
    for bracket in _BRACKET.finditer(_JSON_TEXT.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _place(text: str, error: msgspec.DecodeError) -> str:
    """What is wrong and where: msgspec is the judge, the standard library knows the line."""
    try:
        json.loads(text)
    except json.JSONDecodeError as fault:
        near = clean(text[fault.pos : fault.pos + 20])
        where = f"character {fault.pos + 1}" if "\n" not in text.strip() else f"line {fault.lineno}, column {fault.colno}"
        return f"not JSON: {fault.msg[0].lower()}{fault.msg[1:]} at {where}, {f'before {near!r}' if near else 'its end'}"
    return f"not JSON: {error}"
