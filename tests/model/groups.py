"""Random histories of groups that take turns, under limits per group and in order, played on a store and on their oracle."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hawser.clock import to_us
from hawser.job import State, new_job
from hawser.limit import Limit
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome, Snoozed
from hawser.policy import QueuePolicy
from hawser.store import Acted, Actor, Change, Filter, Settlement, Share, Target, Weight
from tests.model.group_model import ALL, BOUND, TRIES, GroupJob, GroupModel
from tests.model.machine import INDEX, few
from tests.model.played import Disagreement, Played, same

QUEUES = ("red", "blue")
GROUPS = ("a", "b", "c", None)
ACTOR = Actor("ann", "on purpose")
LEASE = 60.0
FAILURE = Failure("ValueError: no")
LIMITS = (
    None,
    Limit(rate="2/4s"),
    Limit(running=2),
    Limit(running=1, per_group=True),
    Limit(running=2, per_group=True),
    Limit(rate="1/4s", per_group=True),
    Limit(running=1, per_group=True, ordered=True),
    Limit(running=1, per_group=True, ordered=True),
)


class GroupMachine(Played):
    """Every rule is one call."""

    model: GroupModel

    def __init__(self) -> None:
        super().__init__()
        self.model = GroupModel(self.clock)
        self.steps = 0

    def pick(self, index: int, *states: State) -> GroupJob | None:
        fit = [job for job in self.model.jobs.values() if job.state in states]
        return fit[index % len(fit)] if fit else None

    # What producers do.

    @initialize(limit=few(*LIMITS), weight=few(1, 1, 3))
    def begin(self, limit: Limit | None, weight: int) -> None:
        """Priorities do not age here: what that gives to a lower one is played elsewhere."""
        for queue in QUEUES:
            self.run(self.store.set_policy(queue, QueuePolicy(ageing=None), ACTOR))
        self.set_limit(limit)
        self.set_weight("red", "a", weight)
        for group in GROUPS:
            self.enqueue(2, group, "red", BOUND, 5, 0.0, None)

    @rule(
        count=few(1, 1, 2, 4, 12),
        group=few(*GROUPS),
        queue=few("red", "red", "blue"),
        task=few(BOUND, BOUND, "mail"),
        priority=few(5, 5, 9),
        delay=few(0.0, 0.0, 0.0, 3.0),
        after=st.none() | few(None) | INDEX,
    )
    def enqueue(
        self, count: int, group: str | None, queue: str, task: str, priority: int, delay: float, after: int | None
    ) -> None:
        upstream = None if after is None else self.pick(after, State.READY, State.RUNNING, State.DEAD)
        waits: dict[str, Any] = {} if upstream is None else {"waits_for": (upstream.id,)}
        for _ in range(count):
            order = len(self.model.jobs)
            id = f"{(order + 1) * 40503 % 65536:08x}-0000-7000-8000-{order:012x}"
            late = 0.0 if upstream else delay
            where: dict[str, Any] = {"task": task, "queue": queue, "priority": priority, "group": group}
            self.run(self.store.enqueue([new_job(id=id, body=b"{}", max_attempts=TRIES, delay=late, **where, **waits)]))
            run_at = self.clock.now() + to_us(late)
            job = GroupJob(id, order, task, queue, priority, group, run_at, fresh=not late)
            job.after = None if upstream is None else upstream.id
            self.model.jobs[id] = job

    # What workers do.

    @rule(limit=few(1, 2, 3, 5, 20, 20))
    def claim(self, limit: int) -> None:
        open_ = self.model.open_jobs()
        most = self.model.most(open_)
        self.model.keep_open()
        got = [job.id for job in self.run(self.store.claim([Share(queue) for queue in QUEUES], limit, "w1", LEASE))]
        same("how many are claimed", len(got), min(limit, most))
        same("claimed although they may not start", set(got) - {job.id for job in open_}, set())
        fresh = {job.id for job in open_ if job.fresh}
        started = self.model.start(got)
        self.limits_are_kept()
        left = self.model.open_jobs() if len(got) < len(open_) else []
        for job in left:
            for other in started:
                self.goes_first(other, job, both_fresh={other.id, job.id} <= fresh)
        same("groups that had more than their turns", self.model.count(started), [])
        self.clock.advance(0.001)

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(how=few("requeue", "rewind", "change", "release", "retry"))
    def the_only_job_of_a_group_comes_back(self, how: str) -> None:
        """Where others of its group wait, nothing shows: they open it."""
        upstream = None
        if how == "release":
            self.enqueue(1, None, "red", "mail", 9, 0.0, None)
            upstream = sum(job.state in (State.READY, State.RUNNING, State.DEAD) for job in self.model.jobs.values()) - 1
        self.enqueue(1, "d", "red", "mail", 9, 0.0, upstream)
        *_, other, job = self.model.jobs.values()
        if how == "change":
            self.run(self.store.change([job.id], Change(queue="blue"), ACTOR))
            self.model.change(job, "blue", job.priority)
        self.claim(200)
        run = other if how == "release" else job
        if how != "change" and run.state is State.RUNNING:
            self.end(run, {"release": "done", "retry": "failed"}.get(how, "cancelled"), 0.0)
            self.claim(200)
            if how in ("requeue", "rewind"):
                self.run_again(job, rewound=how == "rewind")
                self.claim(200)

    @precondition(lambda self: self.steps % 2 == 0)
    @rule(limit=few(1, 2, 3, 5), task=few(BOUND, "mail", "mail"))
    def groups_take_turns(self, limit: int, task: str) -> None:
        """For so long that it shows."""
        for group in GROUPS:
            self.enqueue(6, group, "red", task, 9, 0.0, None)
        for _ in range(12 // limit):
            self.claim(limit)

    def limits_are_kept(self) -> None:
        limit = self.model.limit
        if limit is None:
            return
        names = [group for group in GROUPS if group is not None] if limit.per_group else [ALL]
        for name in names:
            if limit.parsed_rate is not None:
                same(f"too many of {name or 'all'} were started", self.model.started(name) > limit.parsed_rate.starts, False)

    def goes_first(self, started: GroupJob, left: GroupJob, *, both_fresh: bool) -> None:
        """Whether a job that was started may go before one that was left and might have been. Of fresh jobs of one group and task
        the order is known; others have half of the places."""
        queues = QUEUES.index(started.queue) - QUEUES.index(left.queue)
        if queues > 0 or (queues == 0 and started.priority < left.priority):
            raise Disagreement(f"{started} was started before {left}, which is of an earlier queue or a higher priority")
        alike = (started.level, started.group, started.task) == (left.level, left.group, left.task)
        if alike and both_fresh and started.place > left.place:
            raise Disagreement(f"{started} was started before {left}, which has been due for longer")

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule(index=INDEX, outcome=few("done", "done", "failed", "snoozed", "dead", "cancelled"), wait=few(0.0, 0.0, 3.0))
    def settle(self, index: int, outcome: str, wait: float) -> None:
        job = self.pick(index, State.RUNNING)
        assert job is not None
        self.end(job, outcome, wait)

    def end(self, job: GroupJob, outcome: str, wait: float) -> None:
        outcomes: dict[str, Outcome] = {
            "done": Done(),
            "failed": Failed(FAILURE, wait),
            "snoozed": Snoozed(wait),
            "dead": Dead(FAILURE),
            "cancelled": Cancelled("not wanted"),
        }
        [answer] = self.run(self.store.settle([Settlement(job.id, job.lease, outcomes[outcome])]))
        same("the answer of settle", answer.said.value, "settled")
        self.model.end(job, outcome, wait)

    @precondition(lambda self: self.pick(0, State.RUNNING))
    @rule()
    def leases_run_out(self) -> None:
        self.clock.advance(LEASE + 1)
        self.claim(20)
        self.clock.advance(LEASE + 1)
        want = {job.id for job in self.model.jobs.values() if job.state is State.RUNNING}
        same("what is reclaimed", {run.id for run in self.run(self.store.reclaim(1_000))}, want)
        self.model.lose_all()

    @rule(seconds=few(0.25, 1.0, 3.0, 5.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # What operators do.

    @precondition(lambda self: self.steps % 2 == 0)
    @rule(limit=few(*LIMITS))
    def set_limit(self, limit: Limit | None) -> None:
        self.run(self.store.set_limit(Target("task", BOUND), limit, ACTOR))
        self.model.set_limit(limit)

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(queue=few(*QUEUES), group=few("a", "b"), weight=few(1, 2, 3))
    def set_weight(self, queue: str, group: str, weight: int) -> None:
        self.run(self.store.set_weight(Weight(queue, group, weight), ACTOR))
        self.model.weights[queue, group] = weight
        self.model.weighed.add((queue, group))
        self.model.had.clear()

    @precondition(lambda self: self.steps % 4 == 0)
    @rule(task=few(BOUND, "mail"))
    def pause_and_resume(self, task: str) -> None:
        target = Target("task", task)
        if task in self.model.paused:
            self.run(self.store.resume(target, ACTOR))
        else:
            self.run(self.store.pause(target, ACTOR))
        self.model.paused ^= {task}
        self.model.had.clear()

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        if (job := self.pick(index, State.READY, State.RUNNING)) is not None:
            self.run(self.store.cancel([job.id], ACTOR))
            self.model.cancel(job)

    @precondition(lambda self: self.pick(0, State.DEAD, State.CANCELLED))
    @rule(index=INDEX, rewound=st.booleans())
    def requeue(self, index: int, rewound: bool) -> None:
        job = self.pick(index, State.DEAD, State.CANCELLED)
        assert job is not None
        self.run_again(job, rewound=rewound)

    def run_again(self, job: GroupJob, *, rewound: bool) -> None:
        acted = self.store.rewind(job.id, None, ACTOR) if rewound else self.store.requeue([job.id], ACTOR)
        same("the answer of requeue", self.run(acted), Acted.DONE if rewound else [Acted.DONE])
        self.model.requeue(job)

    @rule(index=INDEX, queue=few(*QUEUES), priority=few(5, 9))
    def change(self, index: int, queue: str, priority: int) -> None:
        job = self.pick(index, State.READY)
        if job is not None and job.after is None:
            change = Change(queue=queue, priority=priority)
            same("the answer of change", self.run(self.store.change([job.id], change, ACTOR)), [Acted.DONE])
            self.model.change(job, queue, priority)

    @precondition(lambda self: self.steps % 6 == 0)
    @rule()
    def restart(self) -> None:
        self.stop()
        self.reopen()

    # What everybody sees.

    @invariant()
    def all_stands_as_the_model_says(self) -> None:
        self.steps += 1
        self.model.keep_open()
        jobs = self.run(self.store.find(Filter(), None, 1_000)).jobs
        got = {job.id: (job.state, job.group, job.queue, job.priority, job.held, job.attempt) for job in jobs}
        same("the jobs", got, {id: job.seen() for id, job in self.model.jobs.items()})
        self.a_job_of_a_group_says_what_keeps_it_back()

    def a_job_of_a_group_says_what_keeps_it_back(self) -> None:
        waiting = [job for job in self.model.waiting() if job.group is not None and job.task == BOUND]
        if not waiting or self.model.limit is None or not self.model.limit.per_group:
            return
        job = waiting[self.steps % len(waiting)]
        assert job.group is not None
        wait = self.run(self.store.group_wait(job.id))
        assert wait is not None
        first = self.model.first(job.group) if self.model.limit.ordered else None
        want = (self.model.started(job.group), None if first is None else first.id)
        same(f"what keeps {job.id} back", (wait.started, wait.first), want)
        if self.model.limit.running is not None:
            same(f"how many run beside {job.id}", wait.running, self.model.running(job.group))
