"""One action on many jobs: on those that were named, or on all that match, at a steady rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import click
import msgspec

from hawser.cli import show
from hawser.cli.format import plural
from hawser.cli.opened_app import Opened
from hawser.client import operations, spreading
from hawser.client.operations import JobFilter
from hawser.errors import JobNotFound, WrongState
from hawser.job import Job, State
from hawser.store import Acted, Actor, Filter, Page

_TURNS: Final = 10
"""Pages that are fetched to fill one: a page of a rare filter may come back short."""

_BATCH: Final = 100
_WRITES_PER_SECOND: Final = 5
_COUNTED: Final = 100
"""Jobs that are counted before the question."""

_LISTED: Final = 100
"""Skipped jobs that are named one by one."""

_TELL_EVERY: Final = 2.0
"""Seconds between two lines of progress."""


def fetch(target: Opened, filter: Filter, after: str | None, limit: int) -> Page:
    """A page, filled up as far as a bounded search allows."""
    jobs: list[Job] = []
    searched = 0
    for _ in range(_TURNS):
        page = target.ask(target.store.find(filter, after, limit - len(jobs)))
        jobs += page.jobs
        after = page.next
        searched += page.searched
        if after is None or len(jobs) >= limit:
            break
    return Page(jobs, after, searched)


def each(ids: Sequence[str], act: Callable[[str], str], *, as_json: bool) -> None:
    """Act on every job in turn; a refusal is told and the rest go on, but the command fails."""
    answers: list[dict[str, str]] = []
    failed = False
    for id in dict.fromkeys(id.strip().lower() for id in ids):
        try:
            did = act(id)
        except (JobNotFound, WrongState) as error:
            failed = True
            answers.append({"id": id, "error": str(error)})
            show.note(f"error: {error}")
        else:
            answers.append({"id": id, "acted": did})
            if not as_json:
                show.say(f"{id}  {did}")
    if as_json:
        show.document({"jobs": answers})
    if failed:
        raise click.exceptions.Exit(1)


def chosen(ids: Sequence[str], fields: dict[str, Any], *, every: bool, state: State) -> JobFilter | None:
    """The filter, or None when jobs were named one by one."""
    narrowed = {name: value for name, value in fields.items() if value is not None}
    if ids and (every or narrowed):
        raise click.UsageError("give either the ids of jobs or a filter, not both")
    if not ids and not every and not narrowed:
        known = ", ".join(f"--{name}" for name in sorted(fields))
        raise click.UsageError(f"which jobs? give their ids, or choose with {known} or --all")
    if ids:
        return None
    return cast("JobFilter", {**narrowed, "state": state})


def confirm(target: Opened, filter: JobFilter, question: str, noun: str, *, yes: bool) -> None:
    """Have it confirmed, with the number of jobs."""
    if yes:
        return
    if not _can_be_asked():
        raise click.UsageError("there is no terminal to ask; add --yes")
    page = fetch(target, operations.filter_of(filter), None, _COUNTED)
    count = plural(len(page.jobs), noun) if page.next is None else f"more than {len(page.jobs)} {noun}s"
    if not click.confirm(question.format(count), err=True):
        show.note("nothing was changed")
        raise click.exceptions.Exit(1)


def at_most(limit: int | None) -> str:
    """The part of a question that names a limit."""
    return "" if limit is None else f"at most {limit} of "


def _can_be_asked() -> bool:
    return sys.stdin.isatty()


class Pace:
    """Lets so many a second through."""

    def __init__(
        self, rate: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._next: float | None = None
        self.batch = max(1, min(_BATCH, int(rate / _WRITES_PER_SECOND)))
        """How many go at once, so that few writes make the rate."""

    def wait(self, count: int) -> None:
        """Return when the next `count` may go."""
        now = self._clock()
        if self._next is None:
            self._next = now
        elif self._next > now:
            self._sleep(self._next - now)
        # A pause of the store's own is not made up for by a burst.
        self._next = max(self._next, now) + count / self._rate


class Tally(msgspec.Struct):
    """What became of many."""

    done: int = 0
    skipped: int = 0
    named: list[dict[str, str]] = msgspec.field(default_factory=list)
    """The first of the skipped, with the reason."""

    def skip(self, id: str, why: str) -> None:
        self.skipped += 1
        if len(self.named) < _LISTED:
            self.named.append({"id": id, "why": why})


def matching(
    target: Opened,
    filter: Filter,
    act: Callable[[Sequence[str]], list[Acted]],
    *,
    verb: str,
    rate: float,
    limit: int | None = None,
    refuse: Callable[[Job], str | None] = lambda _: None,
) -> Tally:
    """Act on every job that matches now, newest first, each once, `limit` at the most. `refuse` says why one is left out."""
    tally, pace = Tally(), Pace(rate)
    with _telling(verb) as tell:
        try:
            for found in _batches(target, filter, pace.batch, tally, refuse):
                batch = found if limit is None else found[: limit - tally.done]
                if not batch:
                    break
                pace.wait(len(batch))
                for id, acted in zip(batch, act(batch), strict=True):
                    if acted in (Acted.DONE, Acted.ASKED):
                        tally.done += 1
                    else:
                        tally.skip(id, acted.value)
                tell(tally)
        except BaseException:
            show.note(f"stopped: {tally.done:,} {verb}")
            raise
    return tally


def spread(
    target: Opened, filter: Filter, actor: Actor, seconds: float, limit: int | None, refuse: Callable[[Job], str | None]
) -> Tally:
    """Requeue every dead job that matches now, newest first, so that they fall due evenly over a time."""
    tally = Tally()
    ids = [id for batch in _batches(target, filter, _BATCH, tally, refuse) for id in batch][:limit]
    tally.done = target.ask(spreading.spread_over(target.store.requeue, ids, actor, seconds))
    tally.skipped += len(ids) - tally.done
    return tally


def _batches(
    target: Opened, filter: Filter, size: int, tally: Tally, refuse: Callable[[Job], str | None]
) -> Iterator[Sequence[str]]:
    # The cursor goes down the ids, so a job that dies again meanwhile is not met again.
    after: str | None = None
    while True:
        page = target.ask(target.store.find(filter, after, _BATCH))
        ids = []
        for job in page.jobs:
            if why := refuse(job):
                tally.skip(job.id, why)
            else:
                ids.append(job.id)
        for start in range(0, len(ids), size):
            yield ids[start : start + size]
        if page.next is None:
            return
        after = page.next


def sum_up(tally: Tally, verb: str, *, as_json: bool, changed: str) -> None:
    """Say what became of them; `changed` is what is wrong with one that is in another state by now."""
    if as_json:
        show.document({verb: tally.done, "skipped": tally.skipped, "skipped_jobs": tally.named})
    else:
        show.say(f"{plural(tally.done, 'job')} {verb}" + (f", {tally.skipped:,} skipped" if tally.skipped else ""))
        for skipped in tally.named[:10]:
            why = changed if skipped["why"] == Acted.WRONG_STATE.value else _WHY_NOT.get(skipped["why"], skipped["why"])
            show.note(f"skipped {skipped['id']}: {why}")
        if tally.skipped > 10:
            show.note(f"… and {tally.skipped - 10:,} more")
    if any(skipped["why"] not in _GONE for skipped in tally.named):
        raise click.exceptions.Exit(1)


_GONE: Final = (Acted.NOT_FOUND.value, Acted.WRONG_STATE.value)
"""Another process was faster: not a failure."""

_WHY_NOT: Final = {
    Acted.KEY_TAKEN.value: "another job holds its key; wait until that one has ended, or cancel it",
    Acted.NOT_FOUND.value: "it was pruned meanwhile",
}


class _telling:  # noqa: N801  # read as a word of a with statement
    """Progress on stderr: a spinner on a terminal, a line now and then elsewhere, nothing for what is over at once."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._told = time.monotonic()
        self._status: Any = None

    def __enter__(self) -> Callable[[Tally], None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _tell(self, tally: Tally) -> None:
        if time.monotonic() - self._told < (0.1 if self._status is not None else _TELL_EVERY):
            return
        self._told = time.monotonic()
        text = f"{plural(tally.done, 'job')} {self._verb}" + (f", {tally.skipped:,} skipped" if tally.skipped else "")
        if not sys.stderr.isatty():
            show.note(text)
        elif self._status is None:
            from rich.console import Console  # noqa: PLC0415  # 60 ms that a pipe does without

            self._status = Console(stderr=True).status(text)
            self._status.start()
        else:
            self._status.update(text)
