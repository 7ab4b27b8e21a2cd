"""Random histories of jobs that are put off: debounced ones, and dead ones that are requeued over a time. With their oracle."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.clock import Clock, from_datetime, to_us
from hawser.job import State, new_job
from hawser.outcome import Dead, Done, Failed, Failure, Outcome
from hawser.store import Acted, Actor, Enqueued, Filter, Settlement, Share
from tests.model.machine import INDEX, few
from tests.model.played import Played, same

ACTOR = Actor("ann", "on purpose")
KEYS = ("k1", "k2")
FAILURE = Failure("ValueError: no")
RETRY_AFTER = 3.0
OUTCOMES: dict[State, Outcome] = {State.DONE: Done(), State.DEAD: Dead(FAILURE), State.READY: Failed(FAILURE, RETRY_AFTER)}


@dataclass
class PutOffJob:
    """A job as the oracle keeps it; times in microseconds."""

    body: bytes
    run_at: int
    key: str | None = None
    newest: str = ""
    """The id of the call whose payload it has."""
    until: int | None = None
    state: State = State.READY
    started: bool = False
    lease: int = 0


class PutOffModel:
    """What the seam says of debounced jobs, and of a spread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.claims = 0
        self.jobs: dict[str, PutOffJob] = {}
        self.holders: dict[str, str] = {}

    def call(self, id: str, key: str, body: bytes, debounce: float, at_most: float | None) -> Enqueued:
        now = self.clock.now()
        if id in self.jobs:
            return Enqueued(id, False)
        holder = self.jobs.get(self.holders.get(key, ""))
        if holder is not None and holder.state not in (State.DONE, State.DEAD):
            if id <= holder.newest:
                return Enqueued(self.holders[key], False, id == holder.newest)
            if not holder.started:
                due = now + to_us(debounce)
                holder.body, holder.newest = body, id
                holder.run_at = due if holder.until is None else min(due, holder.until)
                return Enqueued(self.holders[key], False, True)
        until = None if at_most is None else now + to_us(at_most)
        self.jobs[id] = PutOffJob(body, now + to_us(debounce), key, id, until)
        self.holders[key] = id
        return Enqueued(id, True)

    def requeue(self, ids: list[str], spread: float, delay: float) -> None:
        """They fall due evenly over the spread, in their order."""
        for n, id in enumerate(ids):
            self.jobs[id].state = State.READY
            self.jobs[id].run_at = self.clock.now() + to_us(delay) + to_us(spread) * n // len(ids)

    def due(self) -> dict[str, bytes]:
        now = self.clock.now()
        return {id: job.body for id, job in self.jobs.items() if job.state is State.READY and job.run_at <= now}


class PutOffMachine(Played):
    """Every rule is one call."""

    model: PutOffModel

    def __init__(self) -> None:
        super().__init__()
        self.model = PutOffModel(self.clock)
        self.made = 0
        self.late: list[str] = []
        """Ids of calls that have not come yet."""

    def new_id(self) -> str:
        """Ids rise, as those of calls do."""
        self.made += 1
        return f"{self.made:08x}-0000-7000-8000-{self.made:012x}"

    @initialize()
    def begin(self) -> None:
        self.enqueue_dead(3)
        self.call("k1", 5.0, 6.0)

    @rule(key=few(*KEYS), debounce=few(2.0, 5.0), at_most=few(None, 6.0, 6.0))
    def call(self, key: str, debounce: float, at_most: float | None) -> None:
        self.late.append(self.new_id())
        self.send(self.new_id(), key, debounce, at_most)

    @precondition(lambda self: self.made)
    @rule(key=few(*KEYS), index=INDEX)
    def a_call_comes_late_or_again(self, key: str, index: int) -> None:
        known = [id for id, job in self.model.jobs.items() if job.key == key] + self.late[-3:]
        if known:
            self.send(known[index % len(known)], key, 5.0, 6.0)

    def send(self, id: str, key: str, debounce: float, at_most: float | None) -> None:
        body = b'{"call":"%s"}' % id.encode()
        job = new_job(id=id, task="bake", queue="red", body=body, key=key, debounce=debounce, at_most=at_most, max_attempts=9)
        [got] = self.run(self.store.enqueue([job]))
        same(f"the answer of call {id}", got, self.model.call(id, key, body, debounce, at_most))
        self.late = [each for each in self.late if each != id]

    @rule(seconds=few(1.0, 2.0, 3.0, 5.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def claim(self) -> None:
        due = self.model.due()
        got = self.run(self.store.claim([Share("red")], 100, "w1", 10_000.0))
        same("what is claimed", {job.id: job.body for job in got}, due)
        for claimed in got:
            job = self.model.jobs[claimed.id]
            job.state, job.started, job.lease = State.RUNNING, True, claimed.lease
        self.clock.advance(1e-6)

    @precondition(lambda self: self.any(State.RUNNING))
    @rule(index=INDEX, state=few(*OUTCOMES))
    def settle(self, index: int, state: State) -> None:
        running = self.any(State.RUNNING)
        self.end(running[index % len(running)], state)

    def end(self, id: str, state: State) -> None:
        job = self.model.jobs[id]
        [answer] = self.run(self.store.settle([Settlement(id, job.lease, OUTCOMES[state])]))
        same("the answer of settle", answer.said.value, "settled")
        job.state, job.run_at = state, self.clock.now() + to_us(RETRY_AFTER)

    def any(self, state: State) -> list[str]:
        return [id for id, job in self.model.jobs.items() if job.state is state]

    @rule(count=few(1, 2, 3))
    def enqueue_dead(self, count: int) -> None:
        """Jobs without a key that were tried in vain."""
        for _ in range(count):
            id = self.new_id()
            self.run(self.store.enqueue([new_job(id=id, task="bake", queue="red", body=b"{}", max_attempts=9)]))
            self.model.jobs[id] = PutOffJob(b"{}", self.clock.now())
            self.claim()
            self.end(id, State.DEAD)

    @precondition(lambda self: any(self.model.jobs[id].key is None for id in self.any(State.DEAD)))
    @rule(count=few(1, 2, 3), spread=few(0.0, 12.0, 12.0), delay=few(0.0, 2.0))
    def requeue(self, count: int, spread: float, delay: float) -> None:
        ids = [id for id in self.any(State.DEAD) if self.model.jobs[id].key is None][:count]
        same("the answer of requeue", self.run(self.store.requeue(ids, ACTOR, spread, delay)), [Acted.DONE] * len(ids))
        self.model.requeue(ids, spread, delay)

    @invariant()
    def all_stands_as_the_model_says(self) -> None:
        jobs = self.run(self.store.find(Filter(), None, 1_000)).jobs
        waits = {job.id: from_datetime(job.run_at) if job.state is State.READY else None for job in jobs}
        want = {id: job.run_at if job.state is State.READY else None for id, job in self.model.jobs.items()}
        same("when jobs are due", waits, want)
        same(
            "the jobs",
            {job.id: (job.state, job.body) for job in jobs},
            {id: (j.state, j.body) for id, j in self.model.jobs.items()},
        )
