"""The URL of a store: the one place that says how it is shown in messages, logs and answers, and how its settings are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

from hawser.errors import ConfigError

HIDDEN: Final = "***"

LONGEST_TIME_S: Final = 3_600.0
"""Seconds that a time in a URL may be."""

_LIKE_A_PORT: Final = re.compile(r"[0-9]+(?:[/,]|\?[A-Za-z_]+=|$)")
"""What follows the colon behind a host."""

_NO_PORT: Final = re.compile(r"^([a-z+]*://[^/?#:@\[]*:)(?![0-9]*(?:[,/?#]|$))[^/?#@]+")
"""Text in the place of the port that is not a port."""

_SETTING: Final = re.compile(r"([?&;])([^=?&;#]*)=([^&;#]*)")
_WORD: Final = re.compile(r"(?i)(\b\w*pass(?:word|wd|phrase)?\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&;#]+)")
"""`password=…` as libpq's own form has it, with blanks and quotes."""

_SECRET_NAME: Final = re.compile(r"(?i)pass|pwd|secret|token")
"""Settings whose values are hidden; a path to a file of passwords is hidden with them."""


def without_password(url: str) -> str:
    """The URL as it may be shown; rather too much is hidden than too little."""
    return _WORD.sub(rf"\g<1>{HIDDEN}", _SETTING.sub(_hidden_setting, _without_that_of_the_user(url)))


def check_password(url: str) -> None:
    """Refuse a password with a sign that ends the user's part of a URL: the rest of it would be taken for a host or a path."""
    parts, shown = split(url), split(_without_that_of_the_user(url))
    if parts.netloc.rpartition("@")[2] != shown.netloc.rpartition("@")[2] or (parts.fragment and not shown.fragment):
        raise ConfigError(
            f"store: the password in {without_password(url)!r} has one of the signs / ? # [ ]; write them as %2F %3F %23 %5B %5D"
        )


def split(url: str) -> SplitResult:
    """The parts of the URL. What urllib says of a wrong one quotes it, and with it perhaps a part of the password."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigError(
            f"store: {without_password(url)!r} is not a URL; use for example postgresql://user@host/database"
        ) from None


def _hidden_setting(found: re.Match[str]) -> str:
    before, name, value = found.groups()
    return f"{before}{name}={HIDDEN if _SECRET_NAME.search(unquote_plus(name)) else value}"


def _without_that_of_the_user(url: str) -> str:
    """From the first colon behind the scheme to the last `@` before the query: a password may have any sign in it."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    head = rest.partition("?")[0]
    colon, end = rest.find(":"), (head if "@" in head else rest).rfind("@")
    if not 0 <= colon < end or ("@" not in head and _LIKE_A_PORT.match(rest, colon + 1)):
        # Without an `@` it may still be a user and a password, whose host was forgotten.
        return _NO_PORT.sub(rf"\g<1>{HIDDEN}", url)
    return f"{scheme}{separator}{rest[:colon]}:{HIDDEN}{rest[end:]}"


def one_of(name: str, settings: Mapping[str, Any], *known: str) -> str:
    """A setting of a URL that has one of a few values; the first of them when it is left out."""
    value = settings.get(name, known[0])
    if value not in known:
        raise ConfigError(f"store: {name}={value!r} is not known; use {' or '.join(filter(None, known))}")
    return str(value)


def seconds(name: str, settings: Mapping[str, Any], usual: float) -> float:
    """A setting of a URL that is a time."""
    try:
        found = float(settings.get(name, usual))
    except ValueError:
        found = 0.0
    if not 0 < found <= LONGEST_TIME_S:
        raise ConfigError(f"store: {name}={settings[name]!r} is not a time in seconds above 0 and up to {LONGEST_TIME_S:g}")
    return found
