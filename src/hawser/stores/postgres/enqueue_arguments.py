"""Jobs as the arguments of the database's own `enqueue`, and its answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from hawser.clock import from_datetime, to_us
from hawser.job import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT, KeyScope, NewJob
from hawser.store import Enqueued
from hawser.stores.batches import any_tied
from hawser.stores.columns import all_usual, arrays_of, usual_arrays_of
from hawser.stores.debounce import any_debounced

JOBS_PER_STATEMENT: Final = 2_000
"""Jobs that go together in one statement; more than so many of one call are copied."""

DAY_MS: Final = 86_400_000

Arguments = tuple[Any, ...]
Rows = Sequence[Any]
"""As the driver gives them, ours or the caller's."""


class Traits(NamedTuple):
    """What has to be thought of before some jobs are written."""

    usual: bool
    """Nothing: one look at each job has told. So it is with most calls."""
    tied: bool = False
    debounced: bool = False
    waits_its_turn: bool = False
    """Whether another transaction may have to end first."""


USUAL: Final = Traits(usual=True)


def traits_of(jobs: Sequence[NewJob]) -> Traits:
    if all_usual(jobs):
        return USUAL
    waits_its_turn = any(job.key is not None or (job.batch is not None and job.waits_for) for job in jobs)
    return Traits(False, any_tied(jobs), any_debounced(jobs), waits_its_turn)


class EnqueueArguments:
    """Jobs as the arguments of the database's own `enqueue`."""

    def __init__(
        self, jobs: Sequence[NewJob], lanes: Sequence[int], parents: Sequence[str] | None = None, *, usual: bool = False
    ) -> None:
        """Jobs that follow from others are made with those as their parents. `usual`: that they are is known already."""
        if parents is not None:
            jobs = [replace(job, parent_id=parent) for job, parent in zip(jobs, parents, strict=True)]
        self.jobs = jobs
        # The driver asks of each value whether it is an array: 0.3 µs. One lane stands for all.
        self._lanes = lanes[:1] if len(set(lanes)) == 1 else lanes
        self._usual = usual

    def arguments(
        self,
        given: int | None,
        *,
        unlimited: bool = False,
        late: bool = False,
        wake: Sequence[str] = (),
        patience: int | None = None,
    ) -> Arguments:
        ids = [job.id for job in self.jobs]
        return (
            given,
            made_on(ids),
            ids,
            self._lanes,
            *((None, None, None) if self._usual else self._times_and_attempts()),
            unlimited,
            late,
            list(wake) or None,
            patience,
            DEFAULT_ATTEMPTS,
            DEFAULT_TIMEOUT,
            *(usual_arrays_of if self._usual else arrays_of)(self.jobs),
        )

    def _times_and_attempts(self) -> Iterator[list[Any] | None]:
        yield self._unless_all(None, [None if job.run_at is None else from_datetime(job.run_at) for job in self.jobs])
        yield self._unless_all(0, [to_us(job.delay) for job in self.jobs])
        yield self._unless_all(None, [job.max_attempts for job in self.jobs])

    def _unless_all(self, usual: Any, values: list[Any]) -> list[Any] | None:
        """The array, or nothing when it would hold defaults only."""
        return None if values.count(usual) == len(values) else values

    def answers(self, others: Rows) -> list[Enqueued]:
        """What to answer for each job, when the database has said which were not added and who stands for them."""
        answers = [Enqueued(job.id, created=True) for job in self.jobs]
        for place, holder in others:
            answers[place - 1] = Enqueued(holder, created=False)
        return answers


class Pieces:
    """Jobs as several statements of one transaction: each of a size that the server likes, and without an id or a key twice."""

    def __init__(self, jobs: Sequence[NewJob], lanes: Sequence[int]) -> None:
        self._places = [
            group[n : n + JOBS_PER_STATEMENT] for group in rounds(jobs) for n in range(0, len(group), JOBS_PER_STATEMENT)
        ]
        self.calls = [EnqueueArguments([jobs[n] for n in some], [lanes[n] for n in some]) for some in self._places]

    def answers(self, said: Sequence[Rows]) -> list[Enqueued]:
        """What to answer for each job, in the order in which they were given, when the database has answered each statement."""
        placed: dict[int, Enqueued] = {}
        for places, call, others in zip(self._places, self.calls, said, strict=True):
            placed.update(zip(places, call.answers(others), strict=True))
        return [placed[n] for n in range(len(placed))]


def made_on(ids: Iterable[str]) -> int:
    """The day on which the oldest of these ids was made, by its maker's clock."""
    return int(min(ids).replace("-", "")[:12], 16) // DAY_MS


def rounds(jobs: Sequence[NewJob]) -> Iterator[list[int]]:
    """The places of the jobs, in groups in which no id and no key stands twice: the second must see what became of the first."""
    left = list(range(len(jobs)))
    while left:
        seen: set[str | KeyScope] = set()
        now: list[int] = []
        later: list[int] = []
        for n in left:
            job = jobs[n]
            names: set[str | KeyScope] = {job.id} if job.key is None else {job.id, job.key_scope}
            (now if seen.isdisjoint(names) else later).append(n)
            seen |= names
        yield now
        left = later


def keys_of(jobs: Sequence[NewJob]) -> list[KeyScope]:
    """The keys that they want."""
    return [job.key_scope for job in jobs if job.key is not None]


def stands_twice(jobs: Sequence[NewJob]) -> bool:
    """Whether an id or a key stands twice among them."""
    keys = keys_of(jobs)
    return len({job.id for job in jobs}) < len(jobs) or len(set(keys)) < len(keys)
