"""What a worker is told: which queues, how many slots, how long a lease."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from hawser.errors import ConfigError
from hawser.job import name_fault
from hawser.store import MAX_LEASE


class QueueWeight(msgspec.Struct, frozen=True):
    """A queue and its share of the places; None for a strict order."""

    name: str
    weight: int | None = None


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option with its unit, its default and what changing it costs."""

    queues: tuple[QueueWeight, ...] = (QueueWeight("default"),)
    """With weights, places are shared in proportion; without, the first queue goes before the second, and so on."""

    slots: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Jobs that one process runs at once. A waiting async job costs little; a thread or a process each for the others."""

    processes: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes to begin with. One uses one core for Python code."""

    most_processes: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes that autoscaling may go up to."""

    scale_down_after: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    """Seconds of little to do after which autoscaling ends a process. Less saves memory, and starts them more often."""

    claim_batch: Annotated[int, Meta(ge=1, le=10_000)] = 200
    """Most jobs in one claim. More saves round trips on short jobs; a crash gives more jobs back."""

    lease: Annotated[float, Meta(ge=0.5, le=MAX_LEASE)] = 30.0
    """Seconds that a claim holds without renewal: how long a crash of a whole machine keeps its jobs from others."""

    drain_timeout: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    """Seconds that running jobs have to finish after SIGTERM; then they are handed back."""

    isolates: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """Child processes that one process may have for isolated jobs."""

    @property
    def cells(self) -> int:
        """Cells of a process's board: the slots, what waits for a child process, and what waits for a slot or to be settled."""
        return 2 * self.slots + 4 * self.claim_batch


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a supervisor shows its metrics, health and readiness."""

    port: Annotated[int, Meta(ge=0, le=65535)]
    """0 takes a free one."""
    host: str = "127.0.0.1"
    """The pages have no key: beyond this machine they are for a network that you trust."""


class WorkerSettings(TypedDict, total=False):
    """What `run_worker` takes by keyword beyond the usual; `WorkerOptions` says what each means."""

    most_processes: int
    scale_down_after: float
    claim_batch: int
    lease: float
    drain_timeout: float
    isolates: int


def queues_of(text: str | Iterable[str]) -> tuple[QueueWeight, ...]:
    """`critical:6,default:3` or a list of such; all with weights or none."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    queues = []
    for part in parts:
        name, colon, weight = part.strip().partition(":")
        if fault := name_fault(name):
            raise ConfigError(f"queues: {fault}")
        if colon and not (weight.isdigit() and int(weight)):
            raise ConfigError(f"queues: the weight of {name!r} is {weight!r}; use a whole number from 1, as in {name}:3")
        queues.append(QueueWeight(name, int(weight) if colon else None))
    if not queues:
        raise ConfigError("queues: none given; name at least one, such as default")
    if len({queue.name for queue in queues}) < len(queues):
        raise ConfigError(f"queues: a queue is named twice in {','.join(parts)!r}")
    if len({queue.weight is None for queue in queues}) > 1:
        raise ConfigError(
            "queues: some have a weight and some have none; give all one (critical:6,default:3), or none for strict order"
        )
    return tuple(queues)


def checked(**fields: object) -> WorkerOptions:
    """Options, each checked; `ConfigError` names the one that is wrong. None counts as not given."""
    given = {name: value for name, value in fields.items() if value is not None}
    if "queues" in given:
        given["queues"] = queues_of(given["queues"])  # type: ignore[arg-type]  # judged there
    try:
        options = msgspec.convert(given, WorkerOptions)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        raise ConfigError(f"{path.rstrip('`') or 'options'}: {text}; it is {given.get(path.rstrip('`'))!r}") from None
    if options.most_processes < options.processes:
        options = msgspec.structs.replace(options, most_processes=options.processes)
    return options
