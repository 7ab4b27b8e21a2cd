"""Circles of jobs and batches that would wait for each other: found before one is written.

A new circle leads from a batch over one of its new members to what that member waits for, and from there back to the batch. So
the question is what waits for the batch: nearly always very little. Only a held job or a batch can be among it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hawser.errors import FieldError, InvalidJob
from hawser.job import NewJob
from hawser.store import BEHIND_READ, Enqueued
from hawser.stores.dependencies import standing_for, upstream_of

CIRCLE: Final = "it would wait for in a circle"
CROWDED: Final = f"has more than {BEHIND_READ:,} jobs and batches that wait for it"

Behind = Callable[[str], Collection[str]]
"""Gives of a batch all that waits for it, jobs and batches, also over others; no more than one beyond `BEHIND_READ`."""

Waiting = Callable[[Collection[str]], Iterable[str]]
"""Gives of some ids those that may wait for others: held jobs and batches."""


class MemberWait(NamedTuple):
    """A new member of a batch, or one that counts as such, and what it waits for of what was there before."""

    id: str
    batch: str
    upstream: Collection[str]


class CircleFound(NamedTuple):
    """A member that cannot be added."""

    batch: str
    why: str
    id: str = ""
    """What waits for the batch, in a circle."""

    def refusal(self) -> InvalidJob:
        if self.why == CIRCLE:
            text = (
                f"{self.id} waits for batch {self.batch}, in which this job counts: neither would ever start; "
                "leave one of the two out"
            )
        else:
            text = (
                f"batch {self.batch} {CROWDED}: too many to see whether this job waits for one of them; "
                "add it before them, or let it wait for no job that waits itself"
            )
        return InvalidJob(FieldError("after", text))


def member_waits(jobs: Sequence[NewJob], answers: Sequence[Enqueued] | None = None) -> list[MemberWait]:
    """The new members among these jobs that wait. What waits for a new job waits for what that one waits for. Where a key is
    held, the holder is waited for, and counts, in the place of the job."""
    stands_for = {} if answers is None else standing_for(jobs, answers)
    roots: dict[str, tuple[str, ...]] = {}
    found = []
    for n, job in enumerate(jobs):
        if job.id in stands_for:
            behind: tuple[str, ...] = (stands_for[job.id],)
        elif answers is None or answers[n].created:
            behind = tuple(dict.fromkeys(root for id in upstream_of(job, stands_for) for root in roots.get(id, (id,))))
            roots[job.id] = behind
        else:
            continue
        if job.batch is not None and behind:
            found.append(MemberWait(job.id, job.batch, behind))
    return found


class Circles:
    """Judges one new member after another, as if those before were written."""

    def __init__(self, behind: Behind, waiting: Waiting) -> None:
        self._behind = behind
        self._waiting = waiting
        self._found: dict[str, set[str]] = {}
        """By batch: it and what waits for it."""
        self._links: dict[str, set[str]] = {}
        """By batch: what its new members wait for."""

    def judge(self, member: MemberWait) -> CircleFound | None:
        """Why it cannot be added; None when it can, and counts from now on."""
        upstream = set(self._waiting(member.upstream))
        if not upstream:
            return None
        found = self._all_behind(member.batch)
        if (hit := next((id for id in member.upstream if id in found), None)) is not None:
            return CircleFound(member.batch, CIRCLE, hit)
        if len(found) > BEHIND_READ:
            return CircleFound(member.batch, CROWDED)
        self._links.setdefault(member.batch, set()).update(upstream)
        for other in self._found.values():
            if not other.isdisjoint(upstream):
                other.update(found)
        return None

    def _all_behind(self, batch: str) -> set[str]:
        if batch not in self._found:
            found = {batch, *self._behind(batch)}
            for other, upstream in self._links.items():
                if not found.isdisjoint(upstream):
                    found |= self._found[other]
            self._found[batch] = found
        return self._found[batch]


def check_circles(waits: Sequence[MemberWait], behind: Behind, waiting: Waiting) -> None:
    """Refuse members that wait for what in turn waits for their batch."""
    circles = Circles(behind, waiting)
    for member in waits:
        if (found := circles.judge(member)) is not None:
            raise found.refusal()


def in_circles(waits: Sequence[MemberWait], behind: Behind, waiting: Waiting) -> Mapping[str, CircleFound]:
    """Those of the members that wait for what in turn waits for their batch, by id. Each is judged as if those before were
    written, but for those that are among these."""
    circles = Circles(behind, waiting)
    judged = ((member.id, circles.judge(member)) for member in waits)
    return {id: found for id, found in judged if found is not None}
