"""`/dlq/groups`: dead letters by task and kind of error, so that five thousand of one cause are one line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from hawser.api.bodies import GroupsQuery, or_none
from hawser.api.call import Answer, Call, NoBody
from hawser.api.views import GroupsOut, GroupView
from hawser.store import DeadLetter

SEARCHED: Final = 30_000
"""Dead jobs that are looked at, the newest, whatever queue and task are asked for: what bounds the cost. One takes about 10 µs
on SQLite and on PostgreSQL, so all take 0.3 s."""

_PAGE: Final = 1_000
_SHOWN: Final = 500
_LINE: Final = 200
_UNTOLD: Final = "no error was told"

_VARYING: Final = (
    (re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}"), "#"),
    (re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "'…'"),
    (re.compile(r"[^\s]+@[^\s]+"), "…@…"),
    (re.compile(r"[0-9]+"), "#"),
)
"""What differs between errors of one cause: addresses, ids, quoted values, mail addresses, numbers. None looks back or repeats
within a repetition, so each takes time in proportion to the line."""


async def groups(call: Call[NoBody, GroupsQuery]) -> Answer:
    """Dead jobs grouped by task and error, the largest group first."""
    queue, task = or_none(call.query.queue), or_none(call.query.task)
    found: dict[tuple[str, str], _Group] = {}
    after: str | None = None
    searched = 0
    while searched < SEARCHED:
        page = await call.store.dead_letters(queue, task, after, min(_PAGE, SEARCHED - searched))
        for letter in page.letters:
            kind = letter.task, fingerprint(letter.error or _UNTOLD)
            if kind in found:
                found[kind].add(letter)
            else:
                found[kind] = _Group(letter)
        searched += page.looked_at
        after = page.next
        if after is None:
            break
    ordered = sorted(found.items(), key=lambda item: (-item[1].count, item[0]))
    views = [group.view(*kind) for kind, group in ordered[:_SHOWN]]
    return Answer(GroupsOut(groups=views, searched=searched, complete=after is None))


class _Group:
    """Letters of one kind: how many there are, from when to when, and the newest."""

    __slots__ = ("count", "first_at", "last_at", "sample")

    def __init__(self, newest: DeadLetter) -> None:
        self.sample = newest
        self.count = 1
        self.first_at: datetime = newest.finished_at
        self.last_at: datetime = newest.finished_at

    def add(self, letter: DeadLetter) -> None:
        self.count += 1
        self.first_at = min(self.first_at, letter.finished_at)
        self.last_at = max(self.last_at, letter.finished_at)

    def view(self, task: str, error: str) -> GroupView:
        return GroupView(
            task=task,
            fingerprint=error,
            count=self.count,
            first_at=self.first_at,
            last_at=self.last_at,
            sample_id=self.sample.id,
            sample_error=self.sample.error or _UNTOLD,
        )


def fingerprint(error: str) -> str:
    """The first line of an error without what differs from job to job."""
    line = error.strip().partition("\n")[0][:_LINE]
    for varying, word in _VARYING:
        line = varying.sub(word, line)
    return line
