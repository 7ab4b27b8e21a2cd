"""`/dlq/groups`: dead letters by task and kind of error, so that five thousand of one cause are one line."""

from __future__ import annotations

import re
from typing import Final

from hawser.api.bodies import GroupsQuery, or_none
from hawser.api.call import Answer, Call, NoBody
from hawser.api.views import GroupsOut, GroupView
from hawser.job import Job, State
from hawser.store import Filter

SEARCHED: Final = 5_000
"""Dead jobs that are looked at, the newest: what bounds the cost."""

_PAGE: Final = 500
_LINE: Final = 200

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
    query = call.query
    filter = Filter(state=State.DEAD, queue=or_none(query.queue), task=or_none(query.task))
    found: dict[tuple[str, str], list[Job]] = {}
    after: str | None = None
    searched = 0
    while searched < SEARCHED:
        page = await call.store.find(filter, after, _PAGE)
        for job in page.jobs:
            found.setdefault((job.task, fingerprint(_error(job))), []).append(job)
        searched += len(page.jobs)
        after = page.next
        if after is None:
            break
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    views = [_group(task, error, jobs) for (task, error), jobs in ordered[:_PAGE]]
    return Answer(GroupsOut(groups=views, searched=searched, complete=after is None))


def _group(task: str, error: str, jobs: list[Job]) -> GroupView:
    ended = [job.finished_at or job.run_at for job in jobs]
    newest = jobs[0]
    return GroupView(
        task=task,
        fingerprint=error,
        count=len(jobs),
        first_at=min(ended),
        last_at=max(ended),
        sample_id=newest.id,
        sample_error=_error(newest),
    )


def _error(job: Job) -> str:
    return (job.errors[-1].error if job.errors else None) or job.reason or "no error was told"


def fingerprint(error: str) -> str:
    """The first line of an error without what differs from job to job."""
    line = error.strip().partition("\n")[0][:_LINE]
    for varying, word in _VARYING:
        line = varying.sub(word, line)
    return line
