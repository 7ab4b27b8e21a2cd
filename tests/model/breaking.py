"""Random histories of breakers, played on a store and on their oracle: judges, persons and code, and the probes of open ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.breaker import Breaker
from hawser.clock import Clock
from hawser.job import State, new_job
from hawser.outcome import Dead, Done, Failed, Failure, Outcome
from hawser.store import Actor, Filter, Retention, Settlement, Share
from hawser.store.breakers import AttemptCount, BreakerVerdict
from tests.model.breakers import BreakerModel
from tests.model.machine import INDEX, few
from tests.model.played import Played, same

TASKS = ("bake", "mail")
EVERY = 30.0
RULE = Breaker(least=1, probe_every=EVERY)
PERSONS = few(Actor("ann"), Actor("bob"))
TRIES = 100
FAILURE = Failure("OSError: away")
OUTCOMES: dict[State, Outcome] = {State.DONE: Done(), State.DEAD: Dead(FAILURE), State.READY: Failed(FAILURE, 0.0)}


@dataclass
class BrokenJob:
    """A job of a task that may have a breaker."""

    task: str
    state: State = State.READY
    attempt: int = 0
    lease: int = 0


class BreakingModel:
    """All jobs, and the breakers of their tasks."""

    claims = 0

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.breaker = BreakerModel()
        self.jobs: dict[str, BrokenJob] = {}

    def waiting(self) -> Counter[str]:
        """How many of each task may start: of one whose breaker is open the probe, when its time has come."""
        waiting = Counter(job.task for job in self.jobs.values() if job.state is State.READY)
        places = self.breaker.places(self.clock.now())
        return Counter({task: min(count, places.get(task, count)) for task, count in waiting.items()})

    def start(self, id: str) -> None:
        job = self.jobs[id]
        job.state, job.attempt, job.lease = State.RUNNING, job.attempt + 1, job.lease + 1
        self.breaker.started([(job.task, id, job.lease)], self.clock.now())

    def remove(self, id: str) -> None:
        """A probe that was not done is named no longer when its job goes."""
        job = self.jobs.pop(id)
        for one in self.breaker.all.values():
            if one.open is not None and one.open.probe is not None and one.open.probe.id == id and job.state is not State.DONE:
                one.open.probe = None


class BreakerMachine(Played):
    """Every rule is one call."""

    model: BreakingModel

    def __init__(self) -> None:
        super().__init__()
        self.model = BreakingModel(self.clock)
        self.made = 0

    def pick(self, index: int, *states: State) -> str | None:
        fit = [id for id, job in self.model.jobs.items() if job.state in states]
        return fit[index % len(fit)] if fit else None

    # What code and persons say, and what is judged.

    @initialize()
    def begin(self) -> None:
        for task in TASKS:
            self.declare(task, RULE)
            self.enqueue(3, task, None)

    @rule(task=few(*TASKS), rule=few(RULE, Breaker(least=2, probe_every=EVERY), None))
    def declare(self, task: str, rule: Breaker | None) -> None:
        self.run(self.store.declare_breakers({task: rule}))
        self.model.breaker.declare({task: rule}, self.clock.now())

    @rule(task=few(*TASKS), late=few(0, 0, 0, 1), is_open=st.booleans())
    def judge(self, task: str, late: int, is_open: bool) -> None:
        """`late`: of a breaker that has changed since it was looked at."""
        known = self.model.breaker.all.get(task)
        revision = 0 if known is None else known.revision - late
        counted = AttemptCount() if is_open else AttemptCount(7, 3, 2)
        verdict = BreakerVerdict(task=task, revision=revision, open=is_open, failed=4, attempts=5, counted=counted)
        same("the answer of judge", self.run(self.store.judge([verdict])), self.model.breaker.judge([verdict], self.clock.now()))

    @rule(task=few(*TASKS), actor=PERSONS)
    def open_by_hand(self, task: str, actor: Actor) -> None:
        want = self.model.breaker.open_by_hand(task, actor.by, self.clock.now())
        same("the answer of open_breaker", self.run(self.store.open_breaker(task, actor)), want)

    @rule(task=few(*TASKS), actor=PERSONS)
    def close_by_hand(self, task: str, actor: Actor) -> None:
        counted = AttemptCount(9, 2, 1)
        want = self.model.breaker.close_by_hand(task, actor.by, counted, self.clock.now())
        same("the answer of close_breaker", self.run(self.store.close_breaker(task, actor, counted)), want)

    # What producers and workers do.

    @rule(count=st.integers(1, 3), task=few(*TASKS), group=few(None, None, "a", "b"))
    def enqueue(self, count: int, task: str, group: str | None) -> None:
        for _ in range(count):
            self.made += 1
            id = f"{self.made * 40503 % 65536:08x}-0000-7000-8000-{self.made:012x}"
            fields: dict[str, Any] = {"queue": "red", "body": b"{}", "max_attempts": TRIES, "group": group}
            self.run(self.store.enqueue([new_job(id=id, task=task, **fields)]))
            self.model.jobs[id] = BrokenJob(task)

    @rule(limit=few(1, 2, 9))
    def claim(self, limit: int) -> None:
        waiting = self.model.waiting()
        got = self.run(self.store.claim([Share("red")], limit, "w1", 600.0))
        same("how many are claimed", len(got), min(limit, waiting.total()))
        same("claimed although a breaker is open", Counter(job.task for job in got) - waiting, Counter())
        for job in got:
            self.model.start(job.id)
        self.clock.advance(0.001)

    @rule(limit=few(1, 9))
    def a_probe_is_due(self, limit: int) -> None:
        self.clock.advance(EVERY)
        self.claim(limit)
        self.claim(limit)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule(index=INDEX, to=few(*OUTCOMES))
    def settle(self, index: int, to: State) -> None:
        id = self.pick(index, State.RUNNING)
        assert id is not None
        job = self.model.jobs[id]
        [answer] = self.run(self.store.settle([Settlement(id, job.lease, OUTCOMES[to])]))
        same("the answer of settle", answer.said.value, "settled")
        job.state = to

    @precondition(lambda self: self.pick(0, State.DONE, State.DEAD))
    @rule()
    def prune(self) -> None:
        gone = [id for id, job in self.model.jobs.items() if job.state.finished]
        self.clock.advance(0.001)
        same("what is pruned", self.run(self.store.prune(Retention(done=0, dead=0, cancelled=0), {}, 1_000)), len(gone))
        for id in gone:
            self.model.remove(id)

    @rule()
    def restart(self) -> None:
        self.stop()
        self.reopen()

    # What everybody sees.

    @invariant()
    def all_stands_as_the_model_says(self) -> None:
        same("the breakers", self.run(self.store.breakers()), self.model.breaker.statuses())
        jobs = self.run(self.store.find(Filter(), None, 1_000)).jobs
        got = {job.id: (job.state, job.attempt, job.lease) for job in jobs}
        same("the jobs", got, {id: (job.state, job.attempt, job.lease) for id, job in self.model.jobs.items()})
