"""What an attempt decided, and what follows from it. All pure: the store writes what stands here."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeGuard, assert_never

import msgspec

from hawser.backoff import Backoff
from hawser.decision import Cancel, Decision, Drop, Retry, Snooze
from hawser.job import State
from hawser.value.traceback_text import traceback_text

MAX_ERROR: Final = 8 * 1024
MAX_TRACEBACK: Final = 32 * 1024
MAX_RESULT: Final = 256 * 1024


class Suspended(BaseException):
    """Ends a run whose job goes on later, such as after a sleep. Not an `Exception`: a handler's own `except Exception` must not
    catch it."""

    def __init__(self, reason: str, after: float | None = None, hold: Held | None = None) -> None:
        """The job goes on after so many seconds, or when what it is held for has come. With neither it is due at once."""
        super().__init__(reason)
        self.after = after
        self.hold = hold


# What is written. One of these, once, with the lease.


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, cut to a size that a store and a page can carry."""

    error: str
    traceback: str | None = None


class Done(msgspec.Struct, frozen=True, tag=True):
    """It worked. The result is JSON text, or None."""

    result: bytes | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It failed: ready again after so many seconds, or dead when the attempts are used up."""

    failure: Failure
    after: float = 0.0
    lost: bool = False
    """The run did not end, it was lost: its process died, or the lease was not renewed."""


class Dead(msgspec.Struct, frozen=True, tag=True):
    """It failed and must not be tried again."""

    failure: Failure


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """Ready again after so many seconds; no attempt burned."""

    after: float
    reason: str | None = None


class Released(msgspec.Struct, frozen=True, tag=True):
    """Handed back unrun or unfinished, due at once; no attempt burned."""


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """It is no longer wanted: the job ends as cancelled."""

    reason: str | None = None


class Held(msgspec.Struct, frozen=True, tag=True):
    """Waits in the middle of its handler, for an event or for jobs of its own; no attempt burned."""

    name: str
    """Of the step that waits."""
    event: str | None = None
    jobs: tuple[str, ...] = ()
    """Ids: all of them have to be done. Those that are new are enqueued by the settlement of the run."""
    timeout: float | None = None
    """Seconds from the first time that the job is held under this name; None waits without an end."""

    @property
    def reason(self) -> str:
        if self.event is not None:
            return f"waits for the event {self.event!r}"
        return f"waits for {len(self.jobs):,} jobs of its own: {self.name}"


NOTHING_RETURNED: Final = Done()
"""Of the many handlers that return nothing."""

Outcome = Done | Failed | Dead | Snoozed | Released | Cancelled | Held


def decide(ended: Any, *, attempt: int, backoff: Backoff, failed: bool) -> Outcome:
    """The outcome of a handler that returned `ended`, or raised it when `failed`.

    Whether attempts are left is not asked here: `follow` knows, for workers, reclaimers and foreign consumers alike.
    """
    if not failed:
        return _returned(ended, attempt, backoff)
    match ended:
        case Drop():
            return Dead(failure_of(ended))
        case Cancel():
            return Cancelled(_reason(ended))
        case Snooze():
            return Snoozed(ended.seconds, _reason(ended))
        case Suspended():
            if ended.hold is not None:
                return ended.hold
            return Released() if ended.after is None else Snoozed(ended.after, cut(str(ended), MAX_ERROR))
        case Retry():
            return Failed(failure_of(ended), backoff.delay(attempt) if ended.after is None else ended.after)
        case _:
            return Failed(failure_of(ended), backoff.delay(attempt))


def _reason(decision: Decision) -> str | None:
    return cut(str(decision), MAX_ERROR) or None


def _returned(value: Any, attempt: int, backoff: Backoff) -> Outcome:
    if value is None:
        return NOTHING_RETURNED
    try:
        body = msgspec.json.encode(value)
        if len(body) > MAX_RESULT:
            text = f"the result has {len(body):,} bytes of JSON, at most {MAX_RESULT:,} are kept; return a reference to it"
            return Failed(Failure(text), backoff.delay(attempt))
        return Done(body)
    except Exception as error:  # noqa: BLE001  # any object's encoding may raise anything
        text = f"the result cannot be written as JSON: {describe(error)}"
        return Failed(Failure(text), backoff.delay(attempt))


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception stands for, with its traceback; both cut."""
    try:
        lines = traceback_text(error)
    except Exception:  # noqa: BLE001  # a hostile __str__ must not cost the attempt its record
        lines = None
    return Failure(cut(describe(error), MAX_ERROR), cut(lines, MAX_TRACEBACK) if lines else None)


def describe(error: BaseException) -> str:
    """ "ValueError: no such user", also when the exception's own `__str__` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # as above
        text = "(its text could not be read)"
    name = type(error).__qualname__
    return f"{name}: {text}" if text else name


def cut(text: str, longest: int) -> str:
    """The text as every store can keep it: valid Unicode, no NUL, the middle left out when it is too long."""
    text = text.replace("\0", "\\0").encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


CountsAs = Literal["failed", "lost", "returned"]


class Step(NamedTuple):
    """Where a running job goes: the one rule that every store follows."""

    state: State
    word: str
    """How the attempt's record calls it."""
    after: float = 0.0
    burns: bool = True
    """False gives the attempt back."""
    failure: Failure | None = None
    reason: str | None = None
    result: bytes | None = None
    recorded: bool = True
    """False: no attempt is kept in the job's history."""
    crashed: bool = False
    """The run counts as a crash of the job."""
    counts_as: CountsAs | None = None
    """What is counted of the attempt, besides where the job went."""
    hold: Held | None = None
    """What a job that is ready has to wait for."""

    @property
    def due_in(self) -> float | None:
        """Seconds until the job is due again; None when it has ended or is held."""
        return self.after if self.state is State.READY and self.hold is None else None

    def attempts_kept(self, attempt: int) -> int:
        """Of a run with this number: how many attempts the job has had then. To come to a wait is to have recorded a step."""
        if self.hold is not None:
            return 0
        return attempt if self.burns else attempt - 1


def follow(outcome: Outcome, *, attempt: int, max_attempts: int, cancel_asked: bool) -> Step:
    """Where an outcome takes the job.

    Done stands even when a cancel was asked: the work has happened. Any way back to ready ends as cancelled then.
    A failure with no attempts left is dead.
    """
    match outcome:
        case Done():
            return Step(State.DONE, "done", result=outcome.result)
        case Dead():
            return Step(State.DEAD, "dead", failure=outcome.failure, counts_as="failed")
        case Cancelled():
            return Step(State.CANCELLED, "cancelled", reason=outcome.reason)
        case Failed(failure, after, lost):
            counts: CountsAs = "lost" if lost else "failed"
            if cancel_asked:
                return Step(State.CANCELLED, "lost" if lost else "cancelled", failure=failure, crashed=lost, counts_as=counts)
            if attempt >= max_attempts:
                return Step(State.DEAD, counts, failure=failure, crashed=lost, counts_as=counts)
            return Step(State.READY, counts, after=after, failure=failure, crashed=lost, counts_as=counts)
        case Snoozed() | Released() | Held():
            return Step(State.CANCELLED, "cancelled") if cancel_asked else _returned_unused(outcome)
        case _:
            assert_never(outcome)


def _returned_unused(outcome: Snoozed | Released | Held) -> Step:
    step = Step(State.READY, "released", burns=False, recorded=False, counts_as="returned")
    match outcome:
        case Snoozed():
            return step._replace(word="snoozed", after=outcome.after, reason=outcome.reason)
        case Held():
            return step._replace(word="held", reason=outcome.reason, hold=outcome)
        case Released():
            return step
        case _:
            assert_never(outcome)


def worked(outcome: Outcome) -> TypeGuard[Done]:
    """Whether the attempt did its work: then jobs may follow from it."""
    match outcome:
        case Done():
            return True
        case Failed() | Dead() | Snoozed() | Released() | Cancelled() | Held():
            return False
        case _:
            assert_never(outcome)


def holds(outcome: Outcome) -> TypeGuard[Held]:
    """Whether the job waits for something: then jobs may follow from the run, too."""
    match outcome:
        case Done() | Failed() | Dead() | Snoozed() | Released() | Cancelled():
            return False
        case Held():
            return True
        case _:
            assert_never(outcome)


def gives_back(outcome: Outcome) -> bool:
    """Whether the attempt is given back: the job is not further than before."""
    match outcome:
        case Snoozed() | Released() | Held():
            return True
        case Done() | Failed() | Dead() | Cancelled():
            return False
        case _:
            assert_never(outcome)


def hands_back(outcome: Outcome | None) -> bool:
    """Whether the job is handed back, due at once."""
    match outcome:
        case Done() | None | Failed() | Dead() | Snoozed() | Cancelled() | Held():
            return False
        case Released():
            return True
        case _:
            assert_never(outcome)


def was_lost(outcome: Outcome) -> bool:
    """Whether the run did not end but was lost, with its process or its lease."""
    match outcome:
        case Failed():
            return outcome.lost
        case Done() | Dead() | Snoozed() | Released() | Cancelled() | Held():
            return False
        case _:
            assert_never(outcome)


def failure_in(outcome: Outcome) -> Failure | None:
    """What went wrong in the attempt, if anything did."""
    match outcome:
        case Failed() | Dead():
            return outcome.failure
        case Done() | Snoozed() | Released() | Cancelled() | Held():
            return None
        case _:
            assert_never(outcome)


def ready_word(outcome: Outcome) -> str:
    """Why a job is ready again after its run, in a word of the metrics."""
    match outcome:
        case Failed():
            return "retry"
        case Snoozed():
            return "snoozed"
        case Released():
            return "released"
        case Held():
            return "held"
        case Done() | Dead() | Cancelled():  # an operator requeued the job before the settlement was repeated
            return type(outcome).__name__.lower()
        case _:
            assert_never(outcome)


def abandoned(worker: str, *, renewed: bool, attempt: int, max_attempts: int, cancel_asked: bool) -> Step:
    """Where a run goes whose lease ran out: a crash counts as an attempt, and the lease itself was the wait."""
    outcome = Failed(Failure(lease_ran_out(worker, renewed=renewed)), lost=True)
    return follow(outcome, attempt=attempt, max_attempts=max_attempts, cancel_asked=cancel_asked)


MAY_NOT_HAVE_BEGUN: Final = "it is not known whether the run began"


def lease_ran_out(worker: str, *, renewed: bool) -> str:
    """The error of such a run. Only runs that have begun have their lease renewed: a run without a renewal may not have begun."""
    if renewed:
        return f"the lease ran out: worker {worker} stopped renewing it (crashed, frozen or cut off)"
    return f"the lease ran out: worker {worker} never renewed it (crashed, frozen or cut off); {MAY_NOT_HAVE_BEGUN}"
