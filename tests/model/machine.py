"""Random histories, played on a store and on the oracle: after every step answers and whole state must agree."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.backoff import Fixed
from hawser.breaker import Breaker
from hawser.clock import at
from hawser.errors import QueueFull
from hawser.job import FOREVER, UNTIL_START, Attempt, Job, NewJob, State, Waiting, new_job
from hawser.limit import Limit
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Held, Outcome, Released, Snoozed
from hawser.policy import DEFAULT_AGEING, QueuePolicy
from hawser.store import (
    Actor,
    Arrival,
    Change,
    DeadGroup,
    DeadLetter,
    Filter,
    LeaseRef,
    Leave,
    NewStep,
    QueueStats,
    Retention,
    Settlement,
    Share,
    Target,
)
from hawser.store.breakers import AttemptCount, BreakerVerdict
from tests.model.model import LOST_TEXT, Model
from tests.model.played import Disagreement, Played, same

T = TypeVar("T")

QUEUES = ("red", "blue")
TASKS = ("bake", "mail", "sum")
KEYS = ("k1", "k2")
EVENTS = ("e1", "e2", "e3")
WORKERS = ("w1", "w2")
STATES = ("retrying", "held", "running", "done", "dead", "cancelled", "keys", "paused")
FIGURES = (*STATES, "ready", "scheduled", "due", "oldest_age_s", "exact")


class Wanted(NamedTuple):
    """A job as drawn; which id and which instant that means is known when the step runs."""

    again: int | None
    queue: str
    task: str
    priority: int
    due: tuple[str, float]
    max_attempts: int | None
    timeout: float
    key: tuple[str, float] | None
    tags: tuple[str, ...]
    expires: float | None


class Ending(NamedTuple):
    """A settlement as drawn: whose lease, the outcome, the jobs that follow, whether the claim's hint is at hand."""

    lease: tuple[str, int]
    outcome: Outcome
    keep: bool = True
    then: tuple[Wanted, ...] = ()
    hinted: bool = False


def each(n: int) -> Any:
    """A precondition that holds at every n-th step, so that side shows do not crowd out the jobs' own lives."""
    return precondition(lambda self: self.steps % n == 0)


def few(*values: T) -> st.SearchStrategy[T]:
    return st.sampled_from(values)


AFTER = few(0.0, 0.25, 3.0, 20.0)
INDEX = st.integers(0, 40)
LEASE_FOR = few(60.0, 60.0, 10.0, 1.0)
SIGNS = few(Actor(), Actor("ann", "on purpose"))
TARGETS = few(*(Target("queue", name) for name in QUEUES), *(Target("task", name) for name in TASKS))
PROGRESS = few(None, None, b'{"at":1}', b'{"at":2}')
FAILURES = few(Failure("ValueError: no"), Failure("OSError: gone", "Traceback (most recent call last):\n  ..."))

WANTED = st.builds(
    Wanted,
    again=st.none() | few(None) | INDEX,
    queue=few("red", "red", "blue"),
    task=few(*TASKS),
    priority=few(5, 5, 0, 9),
    due=few(("delay", 0.0), ("delay", 0.0), ("delay", 0.25), ("delay", 4.0), ("at", -3.0), ("at", 0.0), ("at", 4.0)),
    max_attempts=few(1, 2, 3, None),
    timeout=few(2.0, 300.0),
    key=st.none() | st.tuples(few(*KEYS), few(0.0, 0.0, 5.0, 50.0, FOREVER, UNTIL_START)),
    tags=few((), (), ("x",), ("x", "y")),
    expires=few(None, None, None, None, 6.0),
)
OUTCOMES = st.one_of(
    st.builds(Done, few(None, b'{"n":1}')),
    st.builds(Failed, FAILURES, AFTER),
    st.builds(Dead, FAILURES),
    st.builds(Snoozed, AFTER, few(None, "not yet")),
    st.just(Released()),
    st.builds(Cancelled, few(None, "not wanted")),
)
LEASES = st.tuples(few("current", "current", "current", "given", "number", "none"), INDEX)
"""One of the current leases, any that was ever given, the present number of any job, or one that never was."""
THEN = st.just(()) | st.lists(WANTED, max_size=2).map(tuple)
ENDINGS = st.builds(Ending, LEASES, OUTCOMES, few(True, True, False), THEN, st.booleans())
IDS = st.lists(INDEX, min_size=1, max_size=3)
RETENTIONS = st.builds(Retention, done=AFTER, dead=AFTER, cancelled=AFTER)


class StoreMachine(Played):
    """Every rule is one call. A subclass says which store it is."""

    model: Model
    steady = True
    """False lets the clock be set back. Then nothing that ends by itself is tried: what is over may be gone for good."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.clock)
        self.made = 0
        self.ids: list[str] = []
        self.sent: dict[str, tuple[str, str, bytes]] = {}
        self.given: dict[tuple[str, int], Any] = {}
        """Every lease ever given, with its hint."""
        self.last: list[Settlement] = []
        self.steps = 0

    def both(self, name: str, *arguments: Any) -> Any:
        """Make the call on both sides and compare the answers."""
        want = getattr(self.model, name)(*arguments)
        got = self.run(getattr(self.store, name)(*arguments))
        same(f"the answer of {name}", got, want)
        return got

    # Turning what was drawn into what it means now.

    def job(self, wanted: Wanted) -> NewJob:
        id = self.pick(wanted.again) if wanted.again is not None and self.ids else self.new_id()
        # An id that is sent again is sent for the same job; another would be refused.
        if entry := self.model.jobs.get(id):
            self.sent[id] = entry.new.task, entry.new.queue, entry.new.body
        task, queue, body = self.sent.setdefault(id, (wanted.task, wanted.queue, b'{"n":%d}' % self.made))
        return new_job(
            id=id,
            task=task,
            queue=queue,
            body=body,
            priority=wanted.priority,
            max_attempts=wanted.max_attempts,
            timeout=wanted.timeout,
            tags=wanted.tags,
            confirm_replay=wanted.priority == 9,
            expires=wanted.expires if self.steady else None,
            **({"delay": wanted.due[1]} if wanted.due[0] == "delay" else {"run_at": self.instant(wanted.due[1])}),
            **({"key": wanted.key[0], "key_ttl": self.ttl(wanted.key[1])} if wanted.key else {}),
        )

    def ttl(self, seconds: float) -> float:
        return seconds if self.steady or seconds in (FOREVER, UNTIL_START) else 0.0

    def new_id(self) -> str:
        """Ids whose order is not the order of insertion, so that a store that mixes them up is caught."""
        self.made += 1
        self.ids.append(f"{self.made * 40503 % 65536:08x}-0000-7000-8000-{self.made:012x}")
        return self.ids[-1]

    def pick(self, index: int) -> str:
        return self.ids[-1 - index % len(self.ids)]

    def instant(self, seconds: float) -> Any:
        return at(self.clock.now()) + timedelta(seconds=seconds)

    def lease(self, drawn: tuple[str, int]) -> tuple[str, int]:
        kind, index = drawn
        current = [(e.new.id, e.lease) for e in self.model.jobs.values() if e.state is State.RUNNING]
        if kind == "current" and current:
            return current[index % len(current)]
        if kind == "given" and self.given:
            return list(self.given)[-1 - index % len(self.given)]
        job = self.pick(index)
        entry = self.model.jobs.get(job)
        if entry is None:
            return job, 1
        return job, entry.lease + 100 if kind == "none" else entry.lease

    def running(self) -> bool:
        return self.any(State.RUNNING)

    def any(self, *states: State) -> bool:
        return any(entry.state in states for entry in self.model.jobs.values())

    # What a worker does.

    @initialize(jobs=st.lists(WANTED, min_size=2, max_size=4))
    def begin(self, jobs: list[Wanted]) -> None:
        self.enqueue_due(jobs)

    @rule(jobs=st.lists(WANTED, min_size=1, max_size=3))
    def enqueue_due(self, jobs: list[Wanted]) -> None:
        """New jobs of one queue that are due at once, so that there is something to do."""
        self.enqueue([job._replace(again=None, queue="red", due=("delay", 0.0)) for job in jobs])

    @each(3)
    @rule(job=WANTED, key=few(*KEYS), ttl=few(0.0, 0.0, 5.0, 50.0, FOREVER))
    def enqueue_keyed(self, job: Wanted, key: str, ttl: float) -> None:
        self.enqueue([job._replace(again=None, key=(key, ttl))])

    @each(2)
    @rule(jobs=st.lists(WANTED, min_size=1, max_size=4))
    def enqueue(self, jobs: list[Wanted]) -> None:
        new = [self.job(wanted) for wanted in jobs]
        full = self.model.too_deep(new)
        if not full:
            self.both("enqueue", new)
            return
        try:
            answer = self.run(self.store.enqueue(new))
        except QueueFull as error:
            named = {error.queue: (error.depth, error.max_depth)}
            same("the full queue", named, {queue: full[queue] for queue in named if queue in full})
        else:
            same("the answer of enqueue", answer, f"QueueFull for one of {full}")

    @rule(
        shares=st.lists(
            st.builds(Share, few(*QUEUES), few(None, None, 1, 2), few(None, None, 0, 2)), min_size=1, unique_by=lambda s: s.queue
        ),
        limit=st.integers(1, 5),
        worker=few(*WORKERS),
        lease_for=LEASE_FOR,
        room=few({}, {}, {"bake": 0}, {"bake": 1, "sum": 2}),
        tasks=few((), (), ("bake",), ("sum",)),
        oldest=st.integers(0, 2),
    )
    def claim(
        self,
        shares: list[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: dict[str, int],
        tasks: tuple[str, ...] = (),
        oldest: int = 0,
    ) -> None:
        """`oldest`: so many of the oldest jobs are left to others."""
        leave = Leave(frozenset(tasks), frozenset(list(self.model.jobs)[:oldest]))
        want = self.model.claim(shares, limit, worker, lease_for, room, leave)
        got = self.run(self.store.claim(shares, limit, worker, lease_for, room, leave))
        self.given |= {(job.id, job.lease): job.hint for job in got}
        same("the answer of claim", [msgspec.structs.replace(job, hint=None) for job in got], want)
        if self.model.breaker.all:
            self.both("breakers")
        if self.model.expired:
            # A claim cancels those that are past their expiry; a store may leave some of them to upkeep.
            self.run(self.store.expire(1_000))
        # What is ready again within the microsecond of a claim may stand behind its frontier, for a sweep to find.
        self.clock.advance(1e-6)

    @rule(limit=st.integers(1, 5), worker=few(*WORKERS), lease_for=LEASE_FOR)
    def claim_from_all(self, limit: int, worker: str, lease_for: float) -> None:
        self.claim([Share(queue) for queue in QUEUES], limit, worker, lease_for, {})

    @each(4)
    @rule(limit=few(10, 12, 20))
    def claim_what_has_aged(self, limit: int) -> None:
        self.clock.advance(DEFAULT_AGEING)
        self.claim([Share(queue) for queue in QUEUES], limit, "w1", 60.0, {})

    @each(4)
    @rule()
    def expire(self) -> None:
        self.both("expire", 1_000)

    @precondition(lambda self: self.given)
    @rule(
        worker=few(*WORKERS),
        leases=st.lists(st.tuples(LEASES, PROGRESS), min_size=1, max_size=3),
        lease_for=LEASE_FOR,
    )
    def extend(self, worker: str, leases: list[tuple[tuple[str, int], bytes | None]], lease_for: float) -> None:
        refs = [LeaseRef(*self.lease(lease), progress) for lease, progress in leases]
        self.both("extend", worker, refs, lease_for)

    @each(2)
    @precondition(running)
    @rule(leases=st.lists(LEASES, min_size=1, max_size=3))
    def holders(self, leases: list[tuple[str, int]]) -> None:
        refs = [LeaseRef(*self.lease(lease)) for lease in leases]
        running = {(entry.new.id, entry.lease) for entry in self.model.jobs.values() if entry.state is State.RUNNING}
        now = {entry.new.id: entry.lease for entry in self.model.jobs.values()}
        refs = [ref for ref in refs if (ref.id, ref.lease) in running or now.get(ref.id) != ref.lease]
        same("who holds the runs", self.run(self.store.holders(refs)), self.model.holders(refs))

    @each(2)
    @precondition(running)
    @rule(workers=st.lists(few(*WORKERS), unique=True))
    def asked_to_stop(self, workers: list[str]) -> None:
        got, want = self.run(self.store.asked_to_stop(workers)), self.model.asked_to_stop(workers)
        same("the runs that are to end", {(ref.id, ref.lease) for ref in got}, {(ref.id, ref.lease) for ref in want})

    @precondition(lambda self: self.given)
    @rule(steps=st.lists(st.tuples(LEASES, few("a", "b", "c"), few(b"1", b"2"), few(None, None, 4.0)), min_size=1, max_size=3))
    def record_steps(self, steps: list[tuple[tuple[str, int], str, bytes, float | None]]) -> None:
        new = []
        for lease, name, value, lasts in steps:
            id, number = self.lease(lease)
            kind = "step" if lasts is None else "sleep"
            new.append(NewStep(id=id, lease=number, name=name, value=value, kind=kind, lasts=lasts))
        self.both("record_steps", new)
        for step in new:
            # A claim's hint says which attempt it was. Steps count anew, so who recorded one does not send it.
            self.given = {key: None if key == (step.id, step.lease) else hint for key, hint in self.given.items()}
            self.both("steps", step.id)

    @precondition(running)
    @rule(index=INDEX, event=few(*EVENTS), timeout=few(None, 0.0, 0.25, 4.0), then=THEN)
    def hold(self, index: int, event: str, timeout: float | None, then: tuple[Wanted, ...]) -> None:
        """A run comes to a wait: it looks first, and is held only if it has to be."""
        if timeout == 0.0:
            # A store that finds this wait over may see others of its event that are: let them go on before.
            self.both("reclaim", 100)
            if not self.running():
                return
        id, lease = self.lease(("current", index))
        arrival = Arrival(id=id, lease=lease, name=event, event=event)
        found = self.both("arrive", arrival)
        self.given = {key: None if key == (id, lease) else hint for key, hint in self.given.items()}
        if found is not None and found.open:
            held = Held(event, event=event, timeout=timeout if self.steady else None)
            self.settle([Ending(("current", index), held, then=then)])
        self.both("steps", id)

    @each(3)
    @precondition(lambda self: self.steady and self.running())
    @rule(index=INDEX, event=few(*EVENTS))
    def a_wait_runs_out(self, index: int, event: str) -> None:
        """The next run is told so, and so is every later one: what it is told first is recorded."""
        id, _ = self.lease(("current", index))
        self.hold(index, event, 0.25, ())
        self.clock.advance(0.25)
        self.both("reclaim", 100)
        self.claim_from_all(5, "w1", 60.0)
        if self.model.jobs[id].state is State.RUNNING:
            arrival = Arrival(id=id, lease=self.model.jobs[id].lease, name=event, event=event)
            self.both("arrive", arrival)
            self.both("steps", id)
            self.given = {key: None if key[0] == id else hint for key, hint in self.given.items()}

    @each(2)
    @precondition(lambda self: self.any(State.DEAD, State.CANCELLED))
    @rule(index=INDEX, to=few(None, "a", "b", *EVENTS), actor=SIGNS)
    def rewind(self, index: int, to: str | None, actor: Actor) -> None:
        [id] = self.some([index], State.DEAD, State.CANCELLED)
        self.both("rewind", id, to, actor)

    @precondition(lambda self: self.given)
    @rule(lease=LEASES, event=few(*EVENTS))
    def arrive(self, lease: tuple[str, int], event: str) -> None:
        id, number = self.lease(lease)
        self.both("arrive", Arrival(id=id, lease=number, name=event, event=event))
        self.given = {key: None if key == (id, number) else hint for key, hint in self.given.items()}

    @rule(name=few(*EVENTS), body=few(b"1", b"2"), keep=few(1.0, 1000.0))
    def emit(self, name: str, body: bytes, keep: float) -> None:
        self.both("emit", name, body, keep if self.steady else 1_000_000.0)
        self.both("event", name)

    @precondition(lambda self: self.given)
    @rule(endings=st.lists(ENDINGS, min_size=1, max_size=3))
    def settle(self, endings: list[Ending]) -> None:
        if len(endings) > 1:
            # They may be written in any order. It would show where one frees the key or the id that a job after another wants.
            endings = [
                ending._replace(then=tuple(job._replace(again=None, key=None) for job in ending.then)) for ending in endings
            ]
        self.last = [self.settlement(ending) for ending in endings]
        self.both("settle", self.last)

    def settlement(self, ending: Ending) -> Settlement:
        lease = self.lease(ending.lease)
        then = tuple(self.job(wanted) for wanted in ending.then)
        return Settlement(*lease, ending.outcome, then, ending.keep, self.given.get(lease) if ending.hinted else None)

    @precondition(running)
    @rule(index=INDEX, outcome=OUTCOMES, hinted=st.booleans())
    def settle_one(self, index: int, outcome: Outcome, hinted: bool) -> None:
        self.settle([Ending(("current", index), outcome, hinted=hinted)])

    @precondition(running)
    @rule(index=INDEX, keep=st.booleans(), then=THEN)
    def succeed(self, index: int, keep: bool, then: tuple[Wanted, ...]) -> None:
        self.settle([Ending(("current", index), Done(b'"fine"'), keep, then, hinted=True)])

    @precondition(running)
    @rule(index=INDEX, failure=FAILURES, after=AFTER)
    def fail(self, index: int, failure: Failure, after: float) -> None:
        self.settle([Ending(("current", index), Failed(failure, after))])

    @each(3)
    @precondition(lambda self: self.last)
    @rule()
    def settle_again(self) -> None:
        self.both("settle", self.last)

    @each(2)
    @precondition(lambda self: self.given)
    @rule(outcome=OUTCOMES, lease_for=LEASE_FOR)
    def use_every_old_lease(self, outcome: Outcome, lease_for: float) -> None:
        current = {(e.new.id, e.lease) for e in self.model.jobs.values() if e.state is State.RUNNING}
        old = [given for given in self.given if given not in current]
        self.both("extend", "w1", [LeaseRef(*given, b'"stale"') for given in old], lease_for)
        self.both("settle", [Settlement(*given, outcome, hint=self.given[given]) for given in old])

    @rule(seconds=few(0.25, 0.5, 1.0, 3.0, 6.0, 11.0, 70.0, 1000.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.steady)
    @rule(seconds=few(1.0, 5.0, 30.0, 500.0))
    def clock_is_set_back(self, seconds: float) -> None:
        """Under the eyes of a worker, which looks for lost runs before and after."""
        self.both("reclaim", 0)
        before = self.clock.now()
        self.clock.advance(-seconds)
        self.model.clock_was_set_back(before)
        self.both("reclaim", 0)

    @precondition(running)
    @rule(early=few(0.0, 0.0, 0.000001))
    def a_lease_runs_out(self, early: float) -> None:
        """To the very microsecond at which the first lease ends, or the one before."""
        first = min(e.lease_until for e in self.model.jobs.values() if e.lease_until is not None)
        self.clock.advance(max(0.0, (first - self.clock.now()) / 1_000_000 - early))

    @precondition(lambda self: self.given)
    @rule(limit=few(1, 2, 100))
    def reclaim(self, limit: int) -> None:
        self.both("reclaim", limit)

    @each(3)
    @rule(jobs=st.lists(WANTED, min_size=1, max_size=3))
    def made(self, jobs: list[Wanted]) -> None:
        """Of ids that were sent before, and of new ones."""
        self.both("made", [self.job(wanted) for wanted in jobs])

    @precondition(lambda self: self.given)
    @rule(lease=LEASES, before=few(0, 1, 1, 1))
    def end_returned(self, lease: tuple[str, int], before: int) -> None:
        """A run that was reclaimed has the number before the present one."""
        id, number = self.lease(lease)
        self.both("end_returned", LeaseRef(id, max(1, number - before)))

    # What an operator does.

    @rule(which=IDS, actor=SIGNS)
    def cancel(self, which: list[int], actor: Actor) -> None:
        self.both("cancel", self.some(which, State.READY, State.RUNNING), actor)

    @precondition(lambda self: self.any(State.DEAD, State.CANCELLED))
    @rule(which=IDS, actor=SIGNS)
    def requeue(self, which: list[int], actor: Actor) -> None:
        self.both("requeue", self.some(which, State.DEAD, State.CANCELLED), actor)

    @precondition(lambda self: self.any(State.DEAD))
    @rule(which=IDS, actor=SIGNS)
    def discard(self, which: list[int], actor: Actor) -> None:
        self.both("discard", self.some(which, State.DEAD), actor)

    @precondition(lambda self: self.any(State.DEAD))
    @rule(which=INDEX, wanted=WANTED, actor=SIGNS)
    def replace(self, which: int, wanted: Wanted, actor: Actor) -> None:
        self.both("replace", self.some([which], State.DEAD)[0], self.job(wanted._replace(again=None)), actor)

    @precondition(lambda self: self.any(State.READY))
    @rule(
        which=IDS,
        queue=few(None, None, *QUEUES),
        priority=few(None, None, 0, 5, 9),
        due=few(None, None, ("delay", 0.0), ("delay", 2.0), ("run_at", -3.0), ("run_at", 1.0)),
        actor=SIGNS,
    )
    def change(
        self, which: list[int], queue: str | None, priority: int | None, due: tuple[str, float] | None, actor: Actor
    ) -> None:
        when: dict[str, Any] = {} if due is None else {due[0]: due[1] if due[0] == "delay" else self.instant(due[1])}
        self.both("change", self.some(which, State.READY), Change(queue=queue, priority=priority, **when), actor)

    @precondition(lambda self: self.any(State.READY))
    @rule(which=IDS, actor=SIGNS)
    def dead_letter(self, which: list[int], actor: Actor) -> None:
        self.both("dead_letter", self.some(which, State.READY), actor)

    @each(2)
    @precondition(running)
    @rule(worker=few(*WORKERS))
    def end_leases(self, worker: str) -> None:
        self.both("end_leases", worker, Actor())

    def some(self, which: list[int], *states: State) -> list[str]:
        """Ids, mostly of jobs in these states: every fourth number means any job at all."""
        fit = [entry.new.id for entry in self.model.jobs.values() if entry.state in states]
        return [fit[index % len(fit)] if fit and index % 4 else self.pick(index) for index in which]

    @each(4)
    @rule(what=TARGETS, actor=SIGNS, until=few(None, 2.0, 60.0, -1.0))
    def pause(self, what: Target, actor: Actor, until: float | None) -> None:
        self.both("pause", what, actor, self.instant(until) if until is not None and self.steady else None)

    @precondition(lambda self: self.model.pauses_set)
    @rule(what=st.none() | TARGETS)
    def resume(self, what: Target | None) -> None:
        for target in [what] if what else list(self.model.pauses_set):
            self.both("resume", target, Actor())

    @each(5)
    @rule(queue=few(*QUEUES), max_depth=few(None, 6, 3, 1))
    def set_depth(self, queue: str, max_depth: int | None) -> None:
        self.both("set_limit", Target("queue", queue), Limit(max_depth=max_depth), Actor())

    @each(3)
    @rule(what=TARGETS, running=few(None, 1, 1, 2, 3), rate=few(None, None, "1/10s", "3/m", "2/4s"), drop=few(False, False, True))
    def set_limit(self, what: Target, running: int | None, rate: str | None, drop: bool) -> None:
        """How a rate goes on after the clock was set back is not played: it keeps jobs back for longer than it says."""
        limit = Limit(running=running, rate=rate if self.steady else None)
        self.both("set_limit", what, None if drop else limit, Actor())

    @each(3)
    @precondition(lambda self: self.steady)
    @rule(task=few(*TASKS), every=few(1.0, 5.0))
    def break_(self, task: str, every: float) -> None:
        """How long a breaker waits for its probe after the clock was set back is not played."""
        self.both("declare_breakers", {task: Breaker(least=1, probe_every=every)})
        self.judge(task, 0, is_open=True)

    @precondition(lambda self: self.model.breaker.all)
    @rule(task=few(*TASKS), late=few(0, 0, 1), is_open=few(False, True))
    def judge(self, task: str, late: int, is_open: bool) -> None:
        """`late`: of a breaker that has changed since it was looked at."""
        known = self.model.breaker.all.get(task)
        revision = 0 if known is None else known.revision - late
        counted = AttemptCount(7, 3, 2) if not is_open else AttemptCount()
        verdict = BreakerVerdict(task=task, revision=revision, open=is_open, failed=4, attempts=5, counted=counted)
        self.both("judge", [verdict])
        self.both("breakers")

    @each(5)
    @precondition(lambda self: self.steady)
    @rule(task=few(*TASKS), what=few("open", "close", "close", "forget"), actor=SIGNS)
    def set_breaker(self, task: str, what: str, actor: Actor) -> None:
        if what == "open":
            self.both("open_breaker", task, actor)
        elif what == "close":
            self.both("close_breaker", task, actor, AttemptCount(9, 2, 1))
        else:
            self.both("declare_breakers", {task: None})
        self.both("breakers")

    @each(5)
    @rule(task=few(*TASKS), limit=few(None, Limit(running=1), Limit(running=2)))
    def declare_limit(self, task: str, limit: Limit | None) -> None:
        self.both("declare_limits", {task: limit})

    @each(5)
    @rule(
        queue=few(*QUEUES),
        max_attempts=few(None, 1, 2),
        backoff=few(None, Fixed(every=3)),
        concurrency=few(None, 4),
        ageing=few(DEFAULT_AGEING, DEFAULT_AGEING, 5.0, None),
    )
    def set_policy(self, queue: str, **policy: Any) -> None:
        self.both("set_policy", queue, QueuePolicy(**policy), Actor())
        self.both("policies")

    @precondition(lambda self: self.steady and self.any(State.DONE, State.DEAD, State.CANCELLED))
    @rule(retention=RETENTIONS, special=RETENTIONS, task=few(*TASKS), limit=few(1, 1000))
    def prune(self, retention: Retention, special: Retention, task: str, limit: int) -> None:
        """Which ones go when there are more than `limit` is the store's to choose: the model follows it."""
        prunable = self.model.prunable(retention, {task: special})
        count = self.run(self.store.prune(retention, {task: special}, limit))
        gone = self.model.jobs.keys() - {job.id for job in self.all_jobs(Filter(), 1000)}
        same("the number of pruned jobs", count, min(limit, len(prunable)))
        same("the number of jobs gone", len(gone), count)
        same("jobs pruned before their time", gone - prunable, set())
        self.model.remove(gone)
        past = self.model.past_events()
        left = {name for name in past if self.run(self.store.event(name)) is not None}
        same("whether enough events are gone", len(left) <= max(0, len(past) - limit), True)
        self.model.forget_events(past - left)
        for name in EVENTS:
            self.both("event", name)

    @each(6)
    @rule()
    def restart(self) -> None:
        self.stop()
        self.reopen()

    # What everybody sees.

    @each(3)
    @rule(
        state=st.none() | few(*State),
        waiting=few(None, None, None, *Waiting),
        queue=few(None, *QUEUES),
        task=few(None, *TASKS),
        key=few(None, None, *KEYS),
        tag=few(None, None, "x", "y"),
        parent=st.none() | few(None) | INDEX,
        since=few(None, None, -10.0, 0.0),
        until=few(None, None, -10.0, 0.0),
        limit=few(1, 3, 100),
    )
    def find(self, parent: int | None, since: float | None, until: float | None, limit: int, **fields: Any) -> None:
        wanted = Filter(
            **fields,
            parent_id=None if parent is None else self.pick(parent),
            since=None if since is None else self.instant(since),
            until=None if until is None else self.instant(until),
        )
        same("what find gives", self.all_jobs(wanted, limit), self.model.find(wanted))

    @rule(queue=few(None, *QUEUES), task=few(None, *TASKS), limit=few(1, 3, 100))
    def dead_letters(self, queue: str | None, task: str | None, limit: int) -> None:
        got: list[DeadLetter] = []
        page = self.run(self.store.dead_letters(queue, task, None, limit))
        looked_at = page.looked_at
        while page.next is not None:
            got += map(_plain_letter, page.letters)
            page = self.run(self.store.dead_letters(queue, task, page.next, limit))
            looked_at += page.looked_at
        got += map(_plain_letter, page.letters)
        same("the dead letters", got, self.model.dead_letters(queue, task))
        same("what was looked at for them", looked_at, len(self.model.dead_letters(None, None)))

    @rule(queue=few(None, *QUEUES), task=few(None, *TASKS))
    def dead_groups(self, queue: str | None, task: str | None) -> None:
        found = self.run(self.store.dead_groups(queue, task))
        got = [msgspec.structs.replace(group, sample=_plain_letter(group.sample)) for group in found.groups]
        want = self.model.dead_groups(queue, task)
        # The model does not know the words for a lease that ran out, which name the worker: of these only the count is compared.
        same("the groups of dead jobs", *([group for group in some if not _ran_out(group)] for some in (got, want)))
        same("dead jobs whose lease ran out", *(sum(group.count for group in some if _ran_out(group)) for some in (got, want)))

    def all_jobs(self, filter: Filter, limit: int) -> list[Job]:
        jobs: list[Job] = []
        after = None
        while True:
            page = self.run(self.store.find(filter, after, limit))
            jobs += map(_plain, page.jobs)
            if len(page.jobs) > limit:
                raise Disagreement(f"a page of {len(page.jobs)} jobs, asked for {limit}")
            if page.next is None:
                return jobs
            after = page.next

    @invariant()
    def the_whole_state_is_as_promised(self) -> None:
        self.steps += 1
        self.compare_jobs(2 if self.steps % 8 == 0 else 1000)
        for queue in QUEUES:
            got, want = self.run(self.store.stats(queue)), self.model.stats(queue)
            same(f"stats of {queue}", self.figures(got), self.figures(want))
        by_target = {pause.target: pause for pause in self.run(self.store.pauses())}
        same("the pauses", by_target, {pause.target: pause for pause in self.model.pauses()})
        limits = {use.target: (use.limit, use.running) for use in self.run(self.store.limits())}
        same("the limits", limits, {target: (limit, self.model.running(target)) for target, limit in self.model.limits().items()})
        if self.ids:
            job = self.pick(self.steps)
            entry, found = self.model.jobs.get(job), self.run(self.store.get(job))
            same(f"get of {job}", found and _plain(found), entry and entry.seen())
            same(f"steps of {job}", self.run(self.store.steps(job)), self.model.steps(job))
        if self.steps % 8 == 0:
            queues = {queue: self.figures(stats) for queue, stats in self.run(self.store.queues()).items()}
            same("the queues", queues, {queue: self.figures(self.model.stats(queue)) for queue in self.model.queues()})

    def figures(self, stats: QueueStats) -> dict[str, Any]:
        """What is compared. How many jobs are due is only counted right while the clock goes forward."""
        return {name: getattr(stats, name) for name in (FIGURES if self.steady else STATES)}

    def compare_jobs(self, page: int) -> None:
        got, want = self.all_jobs(Filter(), page), self.model.find(Filter())
        if got == want:
            return
        same("the ids of all jobs", [job.id for job in got], [job.id for job in want])
        for mine, its in zip(want, got, strict=True):
            for name in Job.__struct_fields__:
                same(f"{name} of job {mine.id}", getattr(its, name), getattr(mine, name))


def _plain(job: Job) -> Job:
    """The job with the free part of a lost attempt's error cut off."""
    return msgspec.structs.replace(job, attempts=tuple(map(_plain_attempt, job.attempts)))


def _ran_out(group: DeadGroup) -> bool:
    return group.sample.error == LOST_TEXT


def _plain_letter(letter: DeadLetter) -> DeadLetter:
    return msgspec.structs.replace(letter, error=LOST_TEXT) if (letter.error or "").startswith(LOST_TEXT) else letter


def _plain_attempt(attempt: Attempt) -> Attempt:
    if attempt.outcome == "lost" and (attempt.error or "").startswith(LOST_TEXT):
        return msgspec.structs.replace(attempt, error=LOST_TEXT)
    return attempt
