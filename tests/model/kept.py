"""Random histories of what is kept beside jobs, played on a store and on its oracle: output, and operations on many jobs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.job import State, new_job
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome
from hawser.store import BULK_SILENCE, Actor, BulkPlan, BulkState, BulkStep, Filter, NewOutput, Retention, Settlement, Share
from tests.model.kept_model import KeptJob, KeptModel
from tests.model.machine import INDEX, few
from tests.model.played import Played, same

ACTOR = Actor("ann", "on purpose")
LEASE = 60.0
TRIES = 100
FAILURE = Failure("ValueError: no")
OUTCOMES: dict[State, Outcome] = {
    State.DONE: Done(),
    State.DEAD: Dead(FAILURE),
    State.CANCELLED: Cancelled("not wanted"),
    State.READY: Failed(FAILURE, 0.0),
}
BODIES = {"text": b'"a"', "number": b"1", "object": b'{"n":2}', "long": b'"%s"' % (b"x" * 400_000)}
"""The last one is so long that a job has room for two."""

WRITES = st.tuples(INDEX, few(0, 0, 0, 1, 2), st.lists(few(*BODIES), min_size=1, max_size=3))
"""Which of the last leases, how many of its chunks are sent again, and what is written."""

OWNERS = ("host:1", "host:2")
BULKS = tuple(f"01a1ec9a-22e2-72e2-b051-{n:012x}" for n in range(3))


class KeptMachine(Played):
    """Every rule is one call."""

    model: KeptModel

    def __init__(self) -> None:
        super().__init__()
        self.model = KeptModel(self.clock)
        self.steps = 0
        self.given: list[tuple[str, int, int]] = []
        """Every lease ever given, with its attempt."""
        self.sent: list[BulkStep] = []

    def both(self, name: str, *arguments: Any) -> Any:
        """Make the call on both sides and compare the answers."""
        want = getattr(self.model, name)(*arguments)
        got = self.run(getattr(self.store, name)(*arguments))
        same(f"the answer of {name}", got, want)
        return got

    def pick(self, index: int, *states: State) -> str | None:
        fit = [id for id, job in self.model.jobs.items() if job.state in states]
        return fit[index % len(fit)] if fit else None

    # Jobs and their output.

    @initialize()
    def begin(self) -> None:
        self.enqueue(4)
        self.claim(2)

    @rule(count=st.integers(1, 3))
    def enqueue(self, count: int) -> None:
        """Also under the ids of jobs that are gone: what those have left is not theirs."""
        for _ in range(count):
            id = next(id for id in map(_id, range(10_000)) if id not in self.model.jobs)
            self.run(self.store.enqueue([new_job(id=id, task="bake", queue="red", body=b"{}", max_attempts=TRIES)]))
            self.model.jobs[id] = KeptJob()

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        for job in self.run(self.store.claim([Share("red")], limit, "w1", LEASE)):
            self.model.start(job.id)
            self.given.append((job.id, job.lease, job.attempt))
        self.clock.advance(0.001)

    @precondition(lambda self: self.given)
    @rule(writes=st.lists(WRITES, min_size=1, max_size=2))
    def write_output(self, writes: list[tuple[int, int, list[str]]]) -> None:
        outputs = []
        for index, again, bodies in writes:
            id, lease, attempt = self.given[-1 - index % min(len(self.given), 6)]
            job = self.model.jobs.get(id)
            place = 0 if job is None else job.of_run(lease)
            chunks = tuple(BODIES[body] for body in bodies)
            outputs.append(NewOutput(id=id, lease=lease, attempt=attempt, first=max(0, place - again), chunks=chunks))
        if len({output.id for output in outputs}) == len(outputs):
            self.both("write_output", outputs)

    @precondition(lambda self: self.model.jobs)
    @rule(index=INDEX, after=few(0, 0, 1, 3), limit=few(1, 2, 100))
    def output(self, index: int, after: int, limit: int) -> None:
        self.both("output", list(self.model.jobs)[index % len(self.model.jobs)], after, limit)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule(index=INDEX, to=few(*OUTCOMES, State.READY))
    def settle(self, index: int, to: State) -> None:
        id = self.pick(index, State.RUNNING)
        assert id is not None
        [answer] = self.run(self.store.settle([Settlement(id, self.model.jobs[id].lease, OUTCOMES[to])]))
        same("the answer of settle", answer.said.value, "settled")
        self.model.end(id, to)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule()
    def leases_run_out(self) -> None:
        self.clock.advance(LEASE + 1)
        lost = {run.id for run in self.run(self.store.reclaim(1_000))}
        same("what is reclaimed", lost, self.model.lose_all())

    @precondition(lambda self: self.pick(0, State.DONE, State.DEAD, State.CANCELLED))
    @rule()
    def prune(self) -> None:
        """Output goes with its job."""
        gone = [id for id, job in self.model.jobs.items() if job.state.finished]
        self.clock.advance(1.0)
        same("what is pruned", self.run(self.store.prune(Retention(done=0, dead=0, cancelled=0), {}, 1_000)), len(gone))
        for id in gone:
            del self.model.jobs[id]

    # Operations.

    @rule(id=few(*BULKS), action=few("requeue", "discard", "cancel"), owner=few(*OWNERS))
    def start_bulk(self, id: str, action: Any, owner: str) -> None:
        state = State.READY if action == "cancel" else State.DEAD
        plan = BulkPlan(action=action, filter=Filter(state=state), newest=BULKS[-1], rate=10.0, by="ann")
        self.both("start_bulk", id, plan, owner)

    @precondition(lambda self: self.model.bulks and self.model.jobs)
    @rule(
        index=INDEX,
        which=st.lists(INDEX, max_size=3),
        old=few(0, 0, 0, 1),
        stray=few(False, False, False, True),
        ends=few(None, None, None, BulkState.DONE, BulkState.FAILED),
        skipped=few(0, 0, 2),
    )
    def step_bulk(
        self, index: int, which: list[int], old: int, stray: bool, ends: BulkState | None, skipped: int
    ) -> None:  # one parameter for each way to be wrong
        """`old`: by a process from which it was taken. `stray`: from where the operation is no more."""
        bulk = list(self.model.bulks.values())[index % len(self.model.bulks)]
        ids = list(dict.fromkeys(list(self.model.jobs)[each % len(self.model.jobs)] for each in which))
        behind = _id(9_999) if stray else bulk.cursor
        cursor = ids[-1] if ids else behind
        turn, error = max(1, bulk.turn - old), "it failed" if ends is BulkState.FAILED else None
        step = BulkStep(id=bulk.id, turn=turn, behind=behind, cursor=cursor, ids=ids, skipped=skipped, ends=ends, error=error)
        self.sent.append(step)
        self.both("step_bulk", step)

    @precondition(lambda self: self.sent)
    @rule(index=INDEX)
    def send_again(self, index: int) -> None:
        """As one whose answer was lost, or that was frozen. Where the cursor stays, a step cannot be told from the one before."""
        step = self.sent[-1 - index % min(4, len(self.sent))]
        if step.cursor != step.behind:
            self.both("step_bulk", step)

    @precondition(lambda self: self.model.running_bulks() and self.model.jobs)
    @rule(index=INDEX, which=INDEX)
    def a_frozen_process_goes_on(self, index: int, which: int) -> None:
        """With a step that it had in hand when another process took the operation over."""
        running = self.model.running_bulks()
        bulk, id = running[index % len(running)], list(self.model.jobs)[which % len(self.model.jobs)]
        step = BulkStep(id=bulk.id, turn=bulk.turn, behind=bulk.cursor, cursor=id, ids=[id])
        self.clock.advance(BULK_SILENCE)
        self.take_bulks(OWNERS[1], 10)
        self.both("step_bulk", step)

    @rule(owner=few(*OWNERS), limit=few(1, 10))
    def take_bulks(self, owner: str, limit: int) -> None:
        fit = self.model.interrupted()
        taken = self.run(self.store.take_bulks(owner, limit))
        same("how many are taken over", len(taken), min(limit, len(fit)))
        same("taken over although they are not interrupted", {bulk.id for bulk in taken} - fit, set())
        self.model.take_bulks(owner, {bulk.id for bulk in taken})
        same("what is taken over", taken, [self.model.bulks[bulk.id] for bulk in taken])

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(id=few(*BULKS))
    def stop_bulk(self, id: str) -> None:
        got, want = self.run(self.store.stop_bulk(id, ACTOR)), self.model.stop_bulk(id)
        same("the answer of stop_bulk", got, want)

    @rule(id=few(*BULKS))
    def bulk(self, id: str) -> None:
        self.both("bulk", id)

    @rule(seconds=few(1.0, 9.0, 21.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.steps % 6 == 0)
    @rule()
    def restart(self) -> None:
        self.stop()
        self.reopen()

    # What everybody sees.

    @invariant()
    def all_stands_as_the_model_says(self) -> None:
        self.steps += 1
        jobs = self.run(self.store.find(Filter(), None, 1_000)).jobs
        got = {job.id: (job.state, job.attempt, job.cancel_asked and job.state is State.RUNNING) for job in jobs}
        want = {id: (job.state, job.attempt, job.asked) for id, job in self.model.jobs.items()}
        same("the jobs", got, want)
        bulks = {bulk.id: bulk for bulk in self.run(self.store.bulks())}
        same("the operations", bulks, {id: self.model.shown(id) for id in self.model.bulks})
        if self.model.jobs:
            self.both("output", list(self.model.jobs)[self.steps % len(self.model.jobs)], 0, 1_000)


def _id(number: int) -> str:
    """Ids whose order is not that of their numbers."""
    return f"{(number + 1) * 40503 % 65536:08x}-0000-7000-8000-{number:012x}"
