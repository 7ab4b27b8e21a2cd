"""What is kept of a job that workers declined: the rule by which a new note changes it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hawser.store import Declined, Unaccepted


class Kept(NamedTuple):
    """What is known of a job; times in microseconds."""

    lease: int
    """The last lease under which it was declined."""
    since: int
    marks: frozenset[str] = frozenset()

    def answer(self, now: int) -> Unaccepted:
        return Unaccepted(max(0, now - self.since) / 1_000_000, self.marks)

    def text(self) -> str:
        return msgspec.json.encode(sorted(self.marks)).decode()


def kept_of(lease: int, since: int, marks: str) -> Kept:
    return Kept(lease, since, msgspec.json.decode(marks, type=frozenset[str]))


def merged(kept: Kept | None, note: Declined, now: int) -> Kept:
    """What is known with a new note. Notes come in any order, and may come twice."""
    if kept is None:
        return Kept(note.lease, now, frozenset({note.mark}))
    began_anew = note.acceptable or note.lease > kept.lease + 1
    return Kept(max(kept.lease, note.lease), now if began_anew else kept.since, kept.marks | {note.mark})
