"""What a worker is told: which queues, how many slots, how long a lease."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from hawser.config import AppVersion
from hawser.errors import ConfigError, did_you_mean
from hawser.store import EVERY_QUEUE, MAX_LEASE
from hawser.value.name import name_fault


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
    """Most jobs in one claim. More saves round trips on short jobs. Never more than there are free slots."""

    lease: Annotated[float, Meta(ge=0.5, le=MAX_LEASE)] = 30.0
    """Seconds that a claim holds without renewal: how long a crash of a whole machine keeps its jobs from others."""

    drain_timeout: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    """Seconds that running jobs have to finish after SIGTERM; then they are handed back."""

    isolates: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """Child processes that one process may have for isolated jobs."""

    unaccepted_after: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 3_600.0
    """Seconds after which a job is dead that no living worker accepts: none knows its task, or its payload fits none of them.
    Less tells of a mistake sooner; more leaves time for a deploy."""

    tasks: tuple[str, ...] | None = None
    """Tasks that this worker runs; None is all that the app has. Jobs of the others are left to other workers."""

    not_tasks: tuple[str, ...] = ()
    """Tasks that it does not run."""

    burst: bool = False
    """End when nothing is due that this worker may run, instead of waiting for more."""

    app_version: AppVersion | None = None
    """What your deploys call the version of the app that this worker runs. None is what the app itself says."""

    @property
    def jobs_at_once(self) -> int:
        """Most jobs that are asked for in one claim: as many as there are slots. Claims of half of them cost 5 to 12 % more CPU a
        job, on SQLite and PostgreSQL alike, and gained nothing."""
        return min(self.claim_batch, self.slots)

    @property
    def cells(self) -> int:
        """Cells of a process's board: what runs, and as many whose outcome is still to be written."""
        return 2 * self.slots


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
    unaccepted_after: float
    tasks: str | Iterable[str]
    not_tasks: str | Iterable[str]
    burst: bool
    app_version: str


def queues_of(text: str | Iterable[str]) -> tuple[QueueWeight, ...]:
    """`critical:6,default:3` or a list of such; all with weights or none."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    queues = []
    for part in parts:
        name, colon, weight = part.strip().partition(":")
        if name != EVERY_QUEUE and (fault := name_fault(name)):
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
    if len(queues) > 1 and any(queue == QueueWeight(EVERY_QUEUE) for queue in queues):
        raise ConfigError("queues: '*' beside other queues needs weights, as in critical:6,*:1; alone it serves all alike")
    return tuple(queues)


def names_of(field: str, given: object) -> tuple[str, ...]:
    """Names from `a,b` or a list of them."""
    if not isinstance(given, str | Iterable):
        raise ConfigError(f"{field}: {given!r} is not a list of names, such as send_email,resize")
    names = tuple(
        name.strip() if isinstance(name, str) else name for name in (given.split(",") if isinstance(given, str) else given)
    )
    for name in names:
        if fault := name_fault(name):
            raise ConfigError(f"{field}: {fault}")
    return names


def checked(**fields: object) -> WorkerOptions:
    """Options, each checked; `ConfigError` names the one that is wrong. None counts as not given."""
    for name in fields:
        if name not in WorkerOptions.__struct_fields__:
            hint = did_you_mean(name, WorkerOptions.__struct_fields__)
            raise ConfigError(f"{name}: a worker has no such option; {hint}")
    given = {name: value for name, value in fields.items() if value is not None}
    if "queues" in given:
        given["queues"] = queues_of(given["queues"])  # type: ignore[arg-type]  # judged there
    for name in ("tasks", "not_tasks"):
        if name in given:
            given[name] = names_of(name, given[name])
    try:
        options = msgspec.convert(given, WorkerOptions)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        raise ConfigError(f"{path.rstrip('`') or 'options'}: {text}; it is {given.get(path.rstrip('`'))!r}") from None
    if options.most_processes < options.processes:
        options = msgspec.structs.replace(options, most_processes=options.processes)
    return options
