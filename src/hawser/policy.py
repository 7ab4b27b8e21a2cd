"""How the jobs of a queue are run. What holds is what the job says, else its task, else its queue, else the defaults here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hawser.backoff import Backoff, BackoffRule, Exponential
from hawser.errors import ConfigError
from hawser.job import DEFAULT_ATTEMPTS, MAX_ATTEMPTS

DEFAULT_BACKOFF: Final = Exponential()
MOST_AT_ONCE: Final = 10_000
DEFAULT_AGEING: Final = 600.0
LONGEST_AGEING: Final = 31_536_000.0


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of a queue are run; None leaves it to the tasks. May be changed while workers run."""

    max_attempts: int | None = None
    """Of jobs that are enqueued from now on; those that wait already keep theirs."""
    backoff: BackoffRule | None = None
    """The wait after an attempt that fails from now on. Workers apply it within seconds."""
    concurrency: int | None = None
    """How many of the queue's jobs one worker process runs at once, of any task. Workers apply it within seconds. For a
    limit over all workers see `Hawser.set_limit`."""
    ageing: float | None = DEFAULT_AGEING
    """Seconds after its due time at which a job counts as held up by higher priorities: a tenth of the places goes to such jobs.
    None: strict priority, under which a job may wait for ever."""


NO_POLICY: Final = QueuePolicy()


def attempts_of(own: int | None, queue: int | None) -> int:
    """The starts that a job has, given what it or its task says, and what its queue says."""
    return own or queue or DEFAULT_ATTEMPTS


def backoff_of(own: Backoff | None, policy: QueuePolicy | None) -> Backoff:
    """The wait between two attempts, given what the task says."""
    return own or (policy and policy.backoff) or DEFAULT_BACKOFF


def checked(fields: Mapping[str, Any]) -> QueuePolicy:
    """A policy, each field judged; `ConfigError` names the one that is wrong."""
    try:
        policy = QueuePolicy(**fields)
    except TypeError as error:
        raise ConfigError(f"policy: {error}; known are {', '.join(QueuePolicy.__struct_fields__)}") from None
    for field, most in (("max_attempts", MAX_ATTEMPTS), ("concurrency", MOST_AT_ONCE)):
        value = getattr(policy, field)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most):
            raise ConfigError(f"{field}: {value!r} is not a whole number from 1 to {most}; None leaves it to the tasks")
    if policy.ageing is not None and not _is_time(policy.ageing):
        raise ConfigError(
            f"ageing: {policy.ageing!r} is not a number of seconds from 1 to {LONGEST_AGEING:.0f}; None is strict priority"
        )
    if policy.backoff is not None and type(policy.backoff) not in BackoffRule.__args__:
        raise ConfigError(f"backoff: {policy.backoff!r} cannot be kept in a store; use Exponential, Linear or Fixed")
    return policy


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= LONGEST_AGEING
