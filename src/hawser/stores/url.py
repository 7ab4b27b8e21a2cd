"""The URL of a store where somebody may read it: in messages, logs and answers."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_PORT: Final = re.compile(r"[0-9]+(?:[/,]|\?[A-Za-z_]+=|$)")
"""What follows the colon behind a host."""

_IN_THE_QUERY: Final = re.compile(r"([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL as it may be shown; rather too much is hidden than too little."""
    return _IN_THE_QUERY.sub(rf"\g<1>{HIDDEN}", _without_that_of_the_user(url))


def _without_that_of_the_user(url: str) -> str:
    """From the first colon behind the scheme to the last `@` before the query: a password may have any sign in it."""
    scheme, sign, rest = url.partition("://") if "://" in url else ("", "", url)
    head = rest.partition("?")[0]
    colon, end = rest.find(":"), (head if "@" in head else rest).rfind("@")
    if not 0 <= colon < end or ("@" not in head and _PORT.match(rest, colon + 1)):
        return url
    return f"{scheme}{sign}{rest[:colon]}:{HIDDEN}{rest[end:]}"
