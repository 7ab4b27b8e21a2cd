"""Why a queue is behind: possible reasons, looked at in the order in which an operator would act on them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from hawser.api.figures import CheckView, Verdict
from hawser.client.explain import breaker_line, limit_lines
from hawser.store import Beat, BreakerStatus, LimitUse, Pause, QueueStats

Level = Literal["good", "warning", "bad", "idle"]

BEHIND_AFTER_S: Final = 10.0
"""Seconds that a due job may wait before its queue counts as behind."""

FAR_BEHIND: Final = 60.0
"""From here on it is not a hint but an alarm."""

GREW: Final = 1.5
"""How many times more than in the hour before counts as growth."""

ENOUGH: Final = 20
"""Events that a comparison needs: fewer say nothing."""

FAILING: Final = (0.2, 0.5, 0.9)
"""Shares of attempts that fail: from the first on it is told, from the second on it is a problem, from the third on an alarm."""

RETRYING: Final = (0.2, 0.5)
"""Shares of attempts that are retries: from the first on it is told, from the second on a problem where all slots are busy."""

ENOUGH_ATTEMPTS: Final = 10
"""Attempts that must have ended for their share of failures, or of retries, to be told."""

BUSY_FROM: Final = 0.95
"""Share of slots in use from which all count as busy."""


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One task within a queue: the last minutes against the hour before."""

    task: str
    waiting: int = 0
    in_s: float = 0.0
    in_before_s: float = 0.0
    failed_s: float = 0.0
    run_p95: float | None = None
    run_p95_before: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the checks look at. Rates are per second."""

    queue: str
    stats: QueueStats
    pause: Pause | None = None
    task_pauses: Sequence[Pause] = ()
    serving: Sequence[Beat] = ()
    """Living workers that serve the queue."""
    lost: Sequence[Beat] = ()
    """Workers that served it and are not heard of any more."""
    shut: Sequence[LimitUse] = ()
    """Limits of the queue, and of tasks that wait in it, that keep jobs back now."""
    open: Sequence[BreakerStatus] = ()
    """Breakers of tasks that wait in it."""
    in_s: float = 0.0
    in_before_s: float | None = 0.0
    """None without a history to compare with."""
    out_s: float = 0.0
    failure_share: float | None = None
    """Failed attempts of all that ended within the last minutes; None when there were too few."""
    retry_share: float | None = None
    """Second and later attempts among all of the jobs that ended within the last minutes; None when there were too few."""
    died: int = 0
    """Jobs that died within the hour."""
    counted: int = 0
    """Attempts that ended within the last minutes."""
    run_p95: float | None = None
    run_p95_before: float | None = None
    tasks: Sequence[TaskFacts] = ()
    first: Sequence[tuple[str, int]] = ()
    """What goes before: other queues of the same workers, or higher priorities, with the jobs that are due there."""

    @property
    def slots(self) -> int:
        return sum(beat.slots for beat in self.serving)

    @property
    def busy(self) -> int:
        return sum(min(beat.running, beat.slots) for beat in self.serving)

    @property
    def full(self) -> bool:
        return self.busy >= BUSY_FROM * self.slots > 0

    @property
    def behind(self) -> bool:
        return self.stats.due > 0 and self.stats.oldest_age_s >= BEHIND_AFTER_S


class Diagnosis(msgspec.Struct, frozen=True):
    """What was found."""

    level: Level
    headline: str
    checks: list[CheckView]


def diagnose(facts: Facts) -> Diagnosis:
    """Every check, and the headline: the first that is a problem.

    When the queue is not behind, only failing jobs are a problem. A pause, or no workers, is then a notice.
    """
    checks = [check(facts) for check in _CHECKS]
    if not facts.behind:
        checks = [_softened(check) for check in checks]
    problem = next((check for check in checks if check.verdict == "problem"), None)
    if problem is not None and not facts.behind:
        return Diagnosis("bad" if _fails_altogether(facts) else "warning", f"{facts.queue}: {problem.text}", checks)
    if problem is not None:
        far = facts.stats.oldest_age_s >= FAR_BEHIND or problem.check == "workers" or _fails_altogether(facts)
        return Diagnosis("bad" if far else "warning", f"{_how_far(facts)}: {problem.text}", checks)
    if facts.behind:
        text = f"{_how_far(facts)}: {_flow(facts)}, {facts.busy:,} of {facts.slots:,} slots busy"
        return Diagnosis("bad" if facts.stats.oldest_age_s >= FAR_BEHIND else "warning", text, checks)
    notice = next((check for check in checks if check.verdict == "notice"), None)
    if notice is not None and notice.check in _LASTING:
        return Diagnosis("warning", f"{facts.queue} is not behind, but {notice.text}", checks)
    if notice is not None:
        return Diagnosis("good", f"{facts.queue} is not behind: {notice.text}", checks)
    if not facts.in_s and not facts.out_s and not facts.stats.running:
        return Diagnosis("idle", f"{facts.queue} is empty and idle", checks)
    return Diagnosis("good", f"{facts.queue} keeps up: {_flow(facts)}", checks)


def _how_far(facts: Facts) -> str:
    if not facts.stats.due:
        return facts.queue
    return f"{facts.queue} is {seconds_in_words(facts.stats.oldest_age_s)} behind"


def _flow(facts: Facts) -> str:
    return f"{_rate(facts.in_s)} come in, {_rate(facts.out_s)} go out"


def _softened(check: CheckView) -> CheckView:
    """Of a queue that is not behind only what will put it behind is worth a word, and that its jobs fail."""
    if check.check == "failures":
        return check
    if check.verdict == "problem" and check.check not in _LASTING:
        return msgspec.structs.replace(check, verdict="fine")
    return check if check.verdict != "problem" else msgspec.structs.replace(check, verdict="notice")


def _paused(facts: Facts) -> CheckView:
    if facts.pause is not None:
        text = f"the queue is paused by {facts.pause.by}{_why(facts.pause)}"
        until = " It ends by itself." if facts.pause.until else ""
        return _found("paused", "problem", text, f"Resume the queue when the reason is gone.{until}")
    if facts.task_pauses:
        names = ", ".join(pause.target.name for pause in facts.task_pauses)
        text = f"task {names} is paused by {facts.task_pauses[0].by}{_why(facts.task_pauses[0])}"
        return _found("paused", "problem", text, "Resume the task when the reason is gone.")
    return _found("paused", "fine", "neither the queue nor a task of it is paused")


def _workers(facts: Facts) -> CheckView:
    if not facts.serving:
        text = f"no living worker serves queue {facts.queue}"
        if not (facts.stats.due or facts.stats.scheduled or facts.stats.retrying or facts.stats.held):
            return _found("workers", "fine", f"{text}, and no job waits in it")
        return _found("workers", "problem", text, f"Start one: hawser worker APP --queues {facts.queue}")
    if all(beat.draining for beat in facts.serving):
        text = f"all {len(facts.serving):,} workers that serve it are draining: they take no more jobs"
        return _found("workers", "problem", text, f"Start one: hawser worker APP --queues {facts.queue}")
    unknown = [
        each.task
        for each in facts.tasks
        if each.waiting and not any(beat.tasks is None or each.task in beat.tasks for beat in facts.serving)
    ]
    if unknown:
        text = f"no living worker that serves it knows task {', '.join(unknown)}"
        return _found("workers", "problem", text, "Deploy a worker whose app has the task.")
    return _found("workers", "fine", f"{_count(len(facts.serving), 'worker')} with {_count(facts.slots, 'slot')} serve it")


def _lost(facts: Facts) -> CheckView:
    if not facts.lost:
        return _found("lost", "fine", "no worker was lost within the hour")
    slots = sum(beat.slots for beat in facts.lost)
    where = ", ".join(sorted({beat.host for beat in facts.lost}))
    text = f"{_count(len(facts.lost), 'worker')} with {_count(slots, 'slot')} lost on {where}"
    return _found("lost", "problem", text, "Look whether the host or the process is gone, and start the worker again.")


def _limited(facts: Facts) -> CheckView:
    if facts.open:
        text = breaker_line(facts.open[0])
        return _found("limited", "problem", text, "Cure what its jobs fail at; a probe closes it, or close it by hand.")
    lines = [line for use in facts.shut for line in _limit_lines(facts, use)]
    if lines:
        return _found("limited", "problem", lines[0], "Raise the limit if what it protects can take more.")
    return _found("limited", "fine", "no limit and no breaker keeps its jobs back")


def _limit_lines(facts: Facts, use: LimitUse) -> list[str]:
    """A rate is told by what it keeps back: when it lets the next job start is of no use to who sees a whole queue."""
    limit, (kind, name) = use.limit, (use.target.kind, use.target.name)
    if use.opens_at is None or (limit.running is not None and use.running >= limit.running):
        return limit_lines(use)
    whose = "its limit" if kind == "queue" else f"the limit of task {name}"
    by = f"set by {use.by}" if use.set else "declared in the code"
    back = facts.stats.due if kind == "queue" else sum(each.waiting for each in facts.tasks if each.task == name)
    return [f"{whose} of {limit.rate} ({by}) keeps {_count(back, 'job')} back; {_rate(facts.in_s)} come in"]


def _fails_altogether(facts: Facts) -> bool:
    return facts.pause is None and facts.failure_share is not None and facts.failure_share >= FAILING[2]


def _failures(facts: Facts) -> CheckView:
    """Of a queue that is paused its failures are no problem any more."""
    share = facts.failure_share
    if share is None:
        return _found("failures", "fine", "too few attempts ended in the last minutes to tell how many fail")
    text = f"{100 * share:.0f} % of its attempts fail"
    told, wrong, _ = FAILING
    retried, eaten = facts.retry_share or 0.0, False
    # Where most attempts fail and slots are free, that there are retries says nothing new.
    if retried >= RETRYING[0] and (facts.full or share < told):
        text += f", and of those of jobs that ended {100 * retried:.0f} % were retries"
        eaten = retried >= RETRYING[1] and facts.full
    if share < told and retried < RETRYING[0]:
        return _found("failures", "fine", text)
    worst = max(facts.tasks, key=lambda each: each.failed_s, default=None)
    if worst is not None and worst.failed_s and len(facts.tasks) > 1:
        text += f", most of them of {worst.task}"
    if facts.died:
        text += f"; {facts.died:,} died within the hour"
    verdict: Verdict = "problem" if (share >= wrong or eaten) and facts.pause is None else "notice"
    return _found(
        "failures", verdict, text, "See the errors of its dead and retrying jobs; pause the task if it cannot work now."
    )


def _run_time(facts: Facts) -> CheckView:
    slower = [each for each in facts.tasks if _grew(each.run_p95, each.run_p95_before, 0.05)]
    now, before = facts.run_p95, facts.run_p95_before
    if now is not None and before is not None and _grew(now, before, 0.05) and facts.counted >= ENOUGH:
        names = f" ({', '.join(each.task for each in slower[:3])})" if slower else ""
        text = f"jobs{names} take {_seconds(now)} (p95); the hour before they took {_seconds(before)}"
        return _found("run_time", "problem", text, "Look at what these jobs call: a database, another service.")
    if now is None:
        return _found("run_time", "fine", "no run was timed in the last minutes")
    return _found("run_time", "fine", f"jobs take {_seconds(now)} (p95), no longer than before")


def _inflow(facts: Facts) -> CheckView:
    if facts.in_before_s is None:
        return _found("inflow", "fine", f"{_rate(facts.in_s)} come in; no history yet to compare with")
    text = f"{_rate(facts.in_s)} come in; the hour before it was {_rate(facts.in_before_s)}"
    if facts.in_s >= GREW * facts.in_before_s and facts.in_s > facts.out_s and facts.in_s > 0.1:
        grown = sorted(facts.tasks, key=lambda each: each.in_before_s - each.in_s)[:1]
        of = f", most of them {grown[0].task}" if grown and grown[0].in_s > grown[0].in_before_s else ""
        slots = "add slots, or " if facts.full else ""
        return _found("inflow", "problem", f"{text}{of}", f"Find out who enqueues so much; {slots}set a depth limit.")
    return _found("inflow", "fine", text)


def _order(facts: Facts) -> CheckView:
    if facts.first and facts.full:
        name, due = facts.first[0]
        text = f"the same workers take {name} first, which has {_count(due, 'due job')}"
        return _found("order", "problem", text, "Give the queue workers of its own, or weights: --queues a:6,b:3.")
    return _found("order", "fine", "nothing that goes first waits")


def _slots(facts: Facts) -> CheckView:
    if facts.full:
        text = f"all {facts.slots:,} slots are busy: {_flow(facts)}"
        return _found("slots", "problem", text, "Add slots (--slots), processes or workers.")
    return _found("slots", "fine", f"{facts.busy:,} of {facts.slots:,} slots are busy")


def _later(facts: Facts) -> CheckView:
    if facts.stats.scheduled and not facts.stats.due:
        one = facts.stats.scheduled == 1
        text = f"{_count(facts.stats.scheduled, 'job')} {'waits for its' if one else 'wait for their'} time, and none is due"
        return _found("later", "notice", text)
    return _found("later", "fine", f"{facts.stats.scheduled:,} of the waiting jobs are due later")


_CHECKS: Final[tuple[Callable[[Facts], CheckView], ...]] = (
    _paused,
    _workers,
    _lost,
    _limited,
    _failures,
    _run_time,
    _inflow,
    _order,
    # The rest are the reasons of full slots; this is what is left when none of them holds.
    _slots,
    _later,
)

_LASTING: Final = frozenset({"paused", "workers", "lost"})
"""What puts a queue behind sooner or later, also when it is not yet."""


def _found(check: str, verdict: Verdict, text: str, advice: str | None = None) -> CheckView:
    return CheckView(check=check, verdict=verdict, text=text, advice=advice)


def _grew(now: float | None, before: float | None, least: float) -> bool:
    return now is not None and before is not None and now >= 2 * before and now - before >= least


def _why(pause: Pause) -> str:
    return "" if pause.reason is None else f": {pause.reason}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _rate(per_second: float) -> str:
    if per_second >= 1:
        return f"{per_second:,.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"
    return f"{per_second * 60:,.1f}/min"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def seconds_in_words(value: float) -> str:
    """Two units at most, as people say it."""
    if value < 60:
        return f"{value:.0f} s"
    if value < 3600:
        return f"{value / 60:.0f} min"
    if value < 2 * 86_400:
        return f"{value / 3600:.0f} h"
    return f"{value / 86_400:.0f} days"
