"""Random histories of batches, of jobs that wait for others, and of those that gather jobs of their own, played on a store and on
their oracle."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.batch import BatchState, new_batch
from hawser.errors import InvalidJob
from hawser.job import NewJob, State, new_job
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Held, Outcome
from hawser.store import Acted, Actor, Arrival, Filter, Settlement, Share
from tests.model.flow_model import TRIES, FlowModel
from tests.model.machine import INDEX, few
from tests.model.played import Played, same

FAILURE = Failure("ValueError: no")
OUTCOMES: dict[State, Outcome] = {
    State.DONE: Done(),
    State.DEAD: Dead(FAILURE),
    State.CANCELLED: Cancelled("not wanted"),
    State.READY: Failed(FAILURE, 0.0),
}
WORDS = {"then": "ended", "on_success": "done", "on_dead": "died"}
ACTOR = Actor("ann", "on purpose")
LEASE = 60.0


class FlowMachine(Played):
    """Every rule is one call."""

    model: FlowModel

    def __init__(self) -> None:
        super().__init__()
        self.model = FlowModel()
        self.made = 0
        self.children: dict[str, NewJob] = {}
        """The jobs that runs have gathered, as they are added."""
        self.steps = 0

    def new_id(self) -> str:
        """Ids whose order is not the order of insertion."""
        self.made += 1
        return f"{self.made * 40503 % 65536:08x}-0000-7000-8000-{self.made:012x}"

    def new_job(self, id: str, **fields: Any) -> NewJob:
        return new_job(id=id, task="bake", queue="red", body=b"{}", max_attempts=TRIES, **fields)

    def pick(self, index: int, *states: State) -> str | None:
        """A job in one of these states."""
        fit = [id for id, job in self.model.jobs.items() if job.state in states]
        return fit[index % len(fit)] if fit else None

    def batch(self, index: int | None) -> str | None:
        known = list(self.model.batches)
        return None if index is None or not known else known[-1 - index % len(known)]

    def last_members(self) -> list[str]:
        """Runs that are all that is left of a batch."""
        running = [(id, job.batch) for id, job in self.model.jobs.items() if job.state is State.RUNNING and job.batch]
        return [id for id, batch in running if self.model.is_last(batch)]

    # What producers do.

    @initialize()
    def begin(self) -> None:
        self.open_batch(list(WORDS), None)
        self.enqueue(2, 0, [], "done")

    @rule(words=st.lists(few(*WORDS), unique=True), parent=st.none() | INDEX)
    def open_batch(self, words: list[str], parent: int | None) -> None:
        id, outer = self.new_id(), self.batch(parent)
        jobs = {word: self.new_job(self.new_id()) for word in words}
        new = new_batch(id=id, name="flow", parent=outer, **jobs)
        if outer is not None and not self.model.takes_more(outer):
            self.refused(self.store.open_batch(new))
            return
        same("the answer of open_batch", self.run(self.store.open_batch(new)), True)
        same("the answer of the second open_batch", self.run(self.store.open_batch(new)), False)
        self.model.open(id, {jobs[word].id: WORDS[word] for word in words}, outer)

    @rule(count=st.integers(1, 3), batch=st.none() | INDEX, after=st.lists(INDEX, max_size=3), on=few("done", "done", "ended"))
    def enqueue(self, count: int, batch: int | None, after: list[int], on: str) -> None:
        """Jobs that wait for some that are there, or for batches; not for their own, of which no such job can be made."""
        own = self.batch(batch)
        known = [*self.model.jobs, *(id for id in self.model.batches if id != own)]
        upstream = {known[index % len(known)]: on for index in after} if known else {}
        if on == "done":
            upstream = {id: on for id in upstream if self.model.standing(id) is not State.CANCELLED}
        ids = [self.new_id() for _ in range(count)]
        jobs = [self.new_job(id, batch=own, waits_for=tuple(upstream), waits_on=on if upstream else "done") for id in ids]
        if own is not None and (not self.model.takes_more(own) or not self.model.comes_after(own).isdisjoint(upstream)):
            self.refused(self.store.enqueue(jobs))
            return
        same("what was added", [answer.created for answer in self.run(self.store.enqueue(jobs))], [True] * count)
        same("what was added twice", [answer.created for answer in self.run(self.store.enqueue(jobs))], [False] * count)
        for id in ids:
            self.model.add(id, own, upstream)
        self.model.come_to_rest()

    def refused(self, call: Any) -> None:
        try:
            self.loop.run_until_complete(call)
        except InvalidJob:
            return
        same("what a batch that takes no more is given", "taken", "refused")

    @rule(index=INDEX)
    def close_batch(self, index: int) -> None:
        id = self.batch(index)
        if id is not None:
            want = Acted.DONE if self.model.close(id) else Acted.WRONG_STATE
            same("the answer of close_batch", self.run(self.store.close_batch(id)), want)

    # What workers do.

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        fit = self.model.claimable()
        got = [job.id for job in self.run(self.store.claim([Share("red")], limit, "w1", LEASE))]
        same("how many are claimed", len(got), min(limit, len(fit)))
        same("claimed although they wait", set(got) - fit, set())
        self.model.claim(got)
        self.clock.advance(0.001)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule(index=INDEX, to=few(State.DONE, *OUTCOMES), adds=few(0, 1, 2))
    def settle(self, index: int, to: State, adds: int) -> None:
        """A run ends, and may add jobs to its own batch in the same write. Often it is the one that its batch waits for."""
        last = self.last_members()
        id = last[index % len(last)] if last and index % 2 else self.pick(index, State.RUNNING)
        assert id is not None
        job = self.model.jobs[id]
        own = job.batch if job.batch and not self.model.batches[job.batch].cancelled else None
        ids = [self.new_id() for _ in range(adds if to is State.DONE else 0)]
        then = tuple(self.new_job(each, batch=own) for each in ids)
        settlement = Settlement(id, job.lease, OUTCOMES[to], then=then)
        [answer] = self.run(self.store.settle([settlement]))
        same("the answer of settle", answer.said.value, "settled")
        for each in ids:
            self.model.add(each, own, {})
        self.model.end(id, to)
        self.clock.advance(0.001)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule(index=INDEX, count=st.integers(1, 3))
    def gather(self, index: int, count: int) -> None:
        """A run comes to a gather. The first adds its jobs; a later one goes past it when all are done, else it waits again."""
        id = self.pick(index, State.RUNNING)
        assert id is not None
        job = self.model.jobs[id]
        name, children = f"g{job.gathers}", job.children
        if children and all(self.model.standing(child) is State.DONE for child in children):
            arrival = Arrival(id=id, lease=job.lease, name=name, value=b"[%d]" % len(children))
            step = self.run(self.store.arrive(arrival))
            came = None if step is None else (step.kind, step.value)
            same("what a gather came to", came, ("gather", [len(children)]))
            self.model.gathered(id)
            return
        if not children:
            if job.batch is not None and self.model.batches[job.batch].cancelled:
                return
            made = [self.new_job(self.new_id(), batch=job.batch) for _ in range(count)]
            children = tuple(each.id for each in made)
            self.children |= {each.id: each for each in made}
        held = Held(name, jobs=children)
        settlement = Settlement(id, job.lease, held, then=tuple(self.children[child] for child in children))
        [answer] = self.run(self.store.settle([settlement]))
        same("the answer of settle", answer.said.value, "settled")
        self.model.gather(id, children)
        self.clock.advance(0.001)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule()
    def lose(self) -> None:
        """Workers die: all leases run out."""
        self.clock.advance(LEASE + 1)
        lost = {id for id, job in self.model.jobs.items() if job.state is State.RUNNING}
        same("what is reclaimed", {run.id for run in self.run(self.store.reclaim(1_000))}, lost)
        self.model.lose_all()
        self.clock.advance(0.001)

    # What operators do.

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if (id := self.pick(index, State.READY, State.RUNNING)) is not None:
            self.run(self.store.cancel([id], ACTOR))
            self.model.cancel(id)

    @precondition(lambda self: self.pick(0, State.DEAD, State.CANCELLED))
    @rule(index=INDEX)
    def requeue(self, index: int) -> None:
        """One that was cancelled with what it waited for is left alone: whether it waits again is not asked here."""
        id = self.pick(index, State.DEAD, State.CANCELLED)
        if id is not None and not (self.model.jobs[id].state is State.CANCELLED and self.model.jobs[id].waited):
            same("the answer of requeue", self.run(self.store.requeue([id], ACTOR)), [Acted.DONE])
            self.model.requeue(id)

    @precondition(lambda self: self.pick(0, State.DEAD))
    @rule(index=INDEX)
    def discard(self, index: int) -> None:
        if (id := self.pick(index, State.DEAD)) is not None:
            same("the answer of discard", self.run(self.store.discard([id], ACTOR)), [Acted.DONE])
            self.model.discard(id)

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(index=INDEX)
    def cancel_batch(self, index: int) -> None:
        if (id := self.batch(index)) is not None:
            want = Acted.DONE if self.model.cancel_batch(id) else Acted.WRONG_STATE
            same("the answer of cancel_batch", self.run(self.store.cancel_batch(id, ACTOR)), want)

    @precondition(lambda self: self.steps % 6 == 0)
    @rule()
    def restart(self) -> None:
        self.stop()
        self.reopen()

    # What everybody sees.

    @invariant()
    def all_stands_as_the_members_say(self) -> None:
        self.steps += 1
        jobs = self.run(self.store.find(Filter(), None, 1_000)).jobs
        got = {job.id: (job.state, job.held, job.cancel_asked and job.state is State.RUNNING, job.batch) for job in jobs}
        want = {id: job.seen() for id, job in self.model.jobs.items()}
        same("jobs: state, held, asked to stop, batch", _differing(got, want), _differing(want, got))
        batches = {batch.id: _shown(batch) for batch in self.run(self.store.batches(limit=1_000)).batches}
        stand = {id: self.model.shown(id) for id in self.model.batches}
        same("batches", _differing(batches, stand), _differing(stand, batches))
        states = [self.model.state(batch) for batch in self.model.batches.values()]
        live = {state: states.count(state) for state in (BatchState.OPEN, BatchState.RUNNING)}
        same("batches that have not ended", self.run(self.store.live_batches()), live)


def _differing(some: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Only what is not the same there, to be read."""
    return {id: each for id, each in some.items() if others.get(id) != each}


def _shown(batch: Any) -> dict[str, object]:
    names = ("total", "waiting", "running", "done", "dead", "cancelled", "state", "closed", "cancel_asked")
    return {name: getattr(batch, name) for name in names} | {"ended": batch.ended_at is not None}
