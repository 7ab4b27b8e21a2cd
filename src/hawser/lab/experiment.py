"""What every experiment has: a setting, a place, a finding, and the folder in which all of it is written down."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from hawser import __version__
from hawser.clock import SystemClock, at
from hawser.errors import ConfigError
from hawser.lab.load import Show, stoppable
from hawser.lab.plot import Plot
from hawser.lab.store_under_test import StoreChoice, StorePlace, chosen, opened

EXPERIMENTS: Final[Mapping[str, str]] = {
    "concurrency": "Throughput by processes and slots, what bounds it, and what more processes cost.",
    "batch": "Throughput by the size of a claim.",
    "growth": "The cost of a job as backlog, queues, tasks, payloads and schedulers grow: does any of it get out of hand?",
    "loss": "Workers are killed under load: is anything lost, or settled twice?",
    "drain": "A deep backlog is drained: does the rate hold to its end?",
    "flapping": "A dependency goes away for a while: what becomes of the jobs that need it, and of the others?",
    "poison": "Jobs that kill their process: dead after exactly their attempts, and the others go on?",
    "lateness": "Delayed jobs behind a backlog: how late do they start?",
    "shutdown": "Workers are told to stop with all slots busy: what is finished, handed back, run twice?",
    "renewal": "Jobs longer than their lease, with and without renewal: which run twice?",
    "fairness": "Queues of different weights, all full, and a quiet one: who is served, and who waits?",
    "limits": "A limit of ten and a rate, over several processes that are killed: are they kept, and used?",
    "breaker": "A dependency is down, with a breaker and without one: what is tried in vain, and when does it go on?",
    "tenants": "One tenant floods a queue, many others come after it with a little each: how long do they wait?",
    "steady": "A mixed load for a long time: does the queue stay flat?",
    "failover": "The primary dies and its synchronous standby takes over, again and again: is anything lost?",
    "snapshot": "A transaction holds an old snapshot of the database: does the rate decay?",
    "crash": "The store itself dies, server or power, again and again: is anything lost that was accepted?",
    "transfers": "Money moves in the store's own database under kills and cuts at COMMIT: is each transfer made exactly once?",
    "flows": "Batches and jobs that wait for others under kills: is what follows released exactly once, and are counts exact?",
    "steps": "Durable flows with sleeps, waits and jobs of their own under kills and cuts: is a step done twice, a wake lost?",
    "chaos": "All faults at once, in a seeded order.",
}
"""Every experiment: a module of its name in `experiments`, with `NUMBERS` and `run`."""


class Finding(msgspec.Struct, kw_only=True):
    """What an experiment found."""

    broken: list[str]
    """What did not hold; empty is good."""
    figures: dict[str, Any]
    text: str
    """One paragraph for people."""
    plot: Plot
    plots: dict[str, Plot] = {}
    """Further ones, by the word that their file has in its name."""
    settings: dict[str, Any] = {}
    """What was turned on the way: rates, slots, times."""


NOTHING_GIVEN: Final[Mapping[str, float]] = MappingProxyType({})


class Number(NamedTuple):
    """Something that can be turned about an experiment."""

    full: float
    quick: float
    about: str


class Lab:
    """What an experiment works with."""

    def __init__(
        self, place: StorePlace, folder: Path, *, seed: int, quick: bool, show: Show, numbers: Mapping[str, float]
    ) -> None:
        self.place = place
        self.folder = folder
        """For files of the experiment's own, gone in the end."""
        self.seed = seed
        self.quick = quick
        self.show = show
        self._numbers = numbers

    def number(self, name: str) -> float:
        """A number of the experiment, as its `NUMBERS` have it or as it was given."""
        return self._numbers[name]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`: all that is needed to repeat a run and to compare it."""

    experiment: str
    verdict: str
    """held or broken."""
    broken: list[str]
    text: str
    figures: dict[str, Any]
    settings: dict[str, Any]
    store: str
    seed: int
    quick: bool
    command: str
    started_at: str
    seconds: float
    versions: dict[str, str]
    machine: dict[str, Any]


def left_out(name: str, store: str | None, given: Mapping[str, float] = NOTHING_GIVEN) -> str | None:
    """Why an experiment cannot be run on a store, or None."""
    choice = chosen(store)
    own_server = choice.own and choice.kind != "sqlite"
    if name == "failover" and not own_server:
        return "it needs servers of its own: --store postgres or --store redis"
    if name == "transfers" and choice.kind == "redis":
        return "its handlers write into the store's own database: --store sqlite or --store postgres"
    if name == "snapshot" and choice.kind != "postgres" and given.get("seconds") != 0:
        return "only PostgreSQL has snapshots that others hold: --store postgres, or --set seconds=0 for the rate alone"
    if name == "crash" and not own_server and (choice.kind != "sqlite" or os.geteuid()):
        return "it needs a server of its own (--store postgres or redis), or root to cut the power of a disk (--store sqlite)"
    return None


def numbers_of(name: str) -> Mapping[str, Number]:
    """What can be turned about an experiment."""
    found: Mapping[str, Number] = importlib.import_module(f"hawser.lab.experiments.{name}").NUMBERS
    return found


def run(name: str, store: str | None, out: Path, *, seed: int, quick: bool, given: Mapping[str, float], show: Show) -> Result:
    """Run one experiment and write `result.json` and `plot.svg` into its folder in `out`."""
    conduct = importlib.import_module(f"hawser.lab.experiments.{name}")
    numbers = {each: number.quick if quick else number.full for each, number in conduct.NUMBERS.items()}
    for unknown in given.keys() - numbers.keys():
        raise ConfigError(f"--set {unknown}: {name} has no such number; it has {', '.join(numbers)}")
    numbers |= given
    choice = chosen(store)
    if reason := left_out(name, store, given):
        raise ConfigError(f"{name}: {reason}")
    folder = _folder(out, f"{name}-{choice.label}")
    began, started_at = time.monotonic(), at(SystemClock().now())
    try:
        with tempfile.TemporaryDirectory(prefix="hawser-lab-") as scratch, opened(store, Path(scratch), warm=not quick) as place:
            lab = Lab(place, Path(scratch), seed=seed, quick=quick, show=show, numbers=numbers)
            finding: Finding = asyncio.run(stoppable(conduct.run(lab), show))
            versions = {"hawser": __version__, "python": platform.python_version(), place.kind: asyncio.run(place.version())}
    except BaseException:
        with suppress(OSError):
            # Only when it is empty: an earlier result stays.
            folder.rmdir()
        raise
    result = Result(
        experiment=name,
        verdict="broken" if finding.broken else "held",
        broken=finding.broken,
        text=finding.text,
        figures=finding.figures,
        settings={**numbers, **finding.settings},
        store=choice.label,
        seed=seed,
        quick=quick,
        command=_command(name, choice, seed, quick, given),
        started_at=started_at.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        versions=versions,
        machine={"cores": os.cpu_count(), "memory_gib": _memory(), "system": platform.platform()},
    )
    (folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    for old in folder.glob("plot*.svg"):
        old.unlink()
    (folder / "plot.svg").write_text(finding.plot.svg())
    for word, plot in finding.plots.items():
        (folder / f"plot-{word}.svg").write_text(plot.svg())
    return result


def _folder(out: Path, name: str) -> Path:
    """Where the result is to be written. Whether it can be shows before the experiment, not after."""
    folder = out / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(f"--out: {str(folder)!r} may not be written: {error.strerror}; name another folder") from error
    return folder


def _command(name: str, choice: StoreChoice, seed: int, quick: bool, given: Mapping[str, float]) -> str:
    words = ["hawser lab", name, "--store", choice.words]
    words += ["--seed", str(seed), *(["--quick"] if quick else ())]
    return " ".join([*words, *(f"--set {key}={value:g}" for key, value in given.items())])


def _memory() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
