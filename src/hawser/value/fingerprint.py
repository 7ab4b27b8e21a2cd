"""Dead jobs of one cause are one group: what their errors have in common."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from hawser.errors import ConfigError

NO_ERROR_TOLD: Final = "no error was told"

_LINE_CHARACTERS: Final = 200
_FINGERPRINT_DIGITS: Final = 16
_GROUP: Final = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9_.\-]{{0,127}}):([0-9a-f]{{{_FINGERPRINT_DIGITS}}})")

_VARYING: Final = (
    (re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}"), "#"),
    (re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "'…'"),
    (re.compile(r"[^\s]+@[^\s]+"), "…@…"),
    (re.compile(r"[0-9]+"), "#"),
)
"""What differs between errors of one cause: addresses, ids, quoted values, mail addresses, numbers. None looks back or repeats
within a repetition, so each takes time in proportion to the line."""


class Group(NamedTuple):
    """Dead jobs of one task whose errors have one fingerprint."""

    task: str
    fingerprint: str

    @property
    def id(self) -> str:
        """How an operator names it."""
        return f"{self.task}:{self.fingerprint}"


def pattern(error: str | None) -> str:
    """The first line of an error without what differs from job to job."""
    line = (error or NO_ERROR_TOLD).strip().partition("\n")[0][:_LINE_CHARACTERS]
    for varying, word in _VARYING:
        line = varying.sub(word, line)
    return line


def fingerprint(error: str | None) -> str:
    """A short name of the pattern, which a store keeps with the dead job."""
    return hashlib.blake2b(pattern(error).encode(), digest_size=_FINGERPRINT_DIGITS // 2).hexdigest()


def group_named(id: str) -> Group:
    """The group of that id."""
    found = _GROUP.fullmatch(id) if isinstance(id, str) else None
    if found is None:
        raise ConfigError(f"group: {id!r} is not the id of a group; `hawser dlq groups` and GET /dlq/groups list them")
    return Group(found[1], found[2])
