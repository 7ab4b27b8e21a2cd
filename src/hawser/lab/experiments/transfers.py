"""Money moves between accounts in the store's own database while workers are killed and commits are cut: is every transfer made
exactly once? Beside it steps with an effect elsewhere: what is repeated, and only in the crash window?"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import msgspec

from hawser.job import NewJob, State, new_job
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import kill_process, kill_supervisor
from hawser.lab.chaos.server import kill_server
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.plot import Line, Plot
from hawser.lab.step_judge import read_lines, repeated_outside
from hawser.lab.transfers_app import CUT, MANY, TABLES
from hawser.lab.trial import Trial, beside, faults, trial
from hawser.store import RecordedStep, Store
from hawser.value.ids import new_id

ACCOUNTS: Final = 100
BALANCE: Final = 1_000
TRANSFERS_LEASE_S: Final = 2.0
STEPS: Final = ("reserve", "charge", "mail")

MUST_BE_0: Final = (
    *("missing", "doubled", "other_than_asked", "off", "accounts_off"),
    *("not_done", "effects_missing", "effects_repeated_outside"),
)

NUMBERS: Final = {
    "transfers": Number(20_000, 400, "transfers, and half as many jobs with steps"),
    "kills": Number(60, 3, "faults that are made"),
    "cut": Number(0.02, 0.05, "the chance that a connection is cut at COMMIT, before or after it took effect"),
}


class OwnTables(NamedTuple):
    """What stands in the handlers' own tables."""

    balances: dict[int, int]
    transfers: list[tuple[str, int, int, int]]


async def run(lab: Lab) -> Finding:
    transfers, chance = int(lab.number("transfers")), lab.number("cut")
    began = time.monotonic()
    curve: list[tuple[float, float]] = []
    async with lab.place.fresh(timeout=30) as (url, store):
        await _prepare(url)
        paid, stepped = _jobs(lab, transfers)
        for some in _parts([*paid, *stepped], 1_000):
            await store.enqueue(some)
        async with trial(
            lab, url, store, units=2, lease=TRANSFERS_LEASE_S, app="hawser.lab.transfers_app:app", environs=[{CUT: f"{chance:g}"}]
        ) as found:
            watching = asyncio.ensure_future(_watch(found, curve, began))
            await found.until(lambda: _working(found))
            made = await faults(_plan(lab, found), lab.number("kills"))
            during = curve[-1][1] if curve else 0
            await found.drain()
            watching.cancel()
        ledger = await _read(url)
        jobs = await found.jobs()
        recorded = await _recorded(store, stepped)
        effects = read_lines(await beside((found.folder / "effects").read_text)).effects
    broken, figures = _judged(paid, stepped, jobs, ledger, recorded, effects)
    return Finding(
        broken=broken,
        figures={
            "faults_made": dict(made),
            "done_while_faults_were_made": int(during),
            "seconds": round(time.monotonic() - began, 1),
            **figures,
        },
        settings={"accounts": ACCOUNTS, "lease": TRANSFERS_LEASE_S, "units": 2, "processes_per_unit": 2, "cut_at_commit": chance},
        text=(
            f"{transfers:,} transfers between {ACCOUNTS} accounts, each in one transaction with its job's end, while"
            f" {made.total()} times a process, a supervisor or the server was killed and {chance:.0%} of all commits were cut."
            f" {figures['made']:,} are in the ledger, {figures['doubled']} twice, {figures['missing']} not,"
            f" {figures['other_than_asked']} otherwise than asked; the sum of balances"
            f" is off by {figures['off']}. Beside them {len(stepped):,} jobs of {len(STEPS)} steps with an effect elsewhere:"
            f" {figures['steps_recorded']:,} steps recorded, {figures['effects_repeated']} effects repeated with the"
            f" same key, {figures['effects_repeated_outside']} of them outside a crash window,"
            f" {figures['effects_missing']} missing."
        ),
        plot=Plot(title="Jobs done under kills and cuts at COMMIT", x="seconds", lines=[Line("done", curve)]),
    )


def _plan(lab: Lab, found: Trial) -> Plan:
    kinds: dict[str, Any] = {
        "kill process": (8, kill_process(found.units)),
        "kill supervisor": (2, kill_supervisor(found.units)),
    }
    if lab.place.cluster is not None and not lab.quick:
        kinds["kill server"] = (1, kill_server(lab.place.cluster, 1.0))
    # A worker needs a second or two after a kill: faults that follow closer meet processes that have not begun.
    return Plan(kinds, seed=lab.seed, every=(0.8, 1.6) if lab.quick else (2.0, 5.0), tell=found.fault)


def _jobs(lab: Lab, transfers: int) -> tuple[list[NewJob], list[NewJob]]:
    dice = random.Random(lab.seed)  # noqa: S311  # no secret: a run that can be repeated
    task = "transfer" if lab.place.kind == "postgres" else "transfer_in_file"
    paid = []
    for _ in range(transfers):
        source, target = dice.sample(range(ACCOUNTS), 2)
        body = msgspec.json.encode({"source": source, "target": target, "amount": dice.randint(1, 50)})
        paid.append(new_job(id=new_id(), task=task, body=body, max_attempts=MANY, timeout=30))
    stepped = [new_job(id=new_id(), task="pay_by_step", body=b"{}", max_attempts=MANY, timeout=30) for _ in range(transfers // 2)]
    return paid, stepped


def _judged(
    paid: list[NewJob],
    stepped: list[NewJob],
    jobs: dict[str, Any],
    ledger: OwnTables,
    recorded: Mapping[str, RecordedStep],
    effects: Mapping[str, Sequence[int]],
) -> tuple[list[str], dict[str, Any]]:
    made = Counter(job for job, *_ in ledger.transfers)
    expected = dict.fromkeys(range(ACCOUNTS), BALANCE)
    for _, source, target, amount in ledger.transfers:
        expected[source] -= amount
        expected[target] += amount
    keys = {f"{job.id}:{name}" for job in stepped for name in STEPS}
    asked = {job.id: tuple(msgspec.json.decode(job.body)[name] for name in ("source", "target", "amount")) for job in paid}
    figures = {
        "made": made.total(),
        "other_than_asked": sum(asked.get(job) != tuple(row) for job, *row in ledger.transfers),
        "missing": sum(job.id not in made for job in paid),
        "doubled": sum(times > 1 for times in made.values()),
        "off": sum(ledger.balances.values()) - ACCOUNTS * BALANCE,
        "accounts_off": sum(ledger.balances[account] != balance for account, balance in expected.items()),
        "not_done": sum(id not in jobs or jobs[id].state is not State.DONE for id in (job.id for job in (*paid, *stepped))),
        "steps_recorded": sum(step.value == key for key, step in recorded.items()),
        "effects_repeated": sum(len(made) - 1 for made in effects.values()),
        "effects_repeated_outside": sum(repeated_outside(step, effects.get(key, ())) for key, step in recorded.items()),
        "effects_missing": len(keys - effects.keys()),
    }
    bars = {name: figures[name] for name in MUST_BE_0}
    broken = [f"{name}: {value}; it must be 0" for name, value in bars.items() if value]
    if effects.keys() - keys:
        broken.append("an effect was made under a key of no job")
    if figures["steps_recorded"] != len(keys):
        broken.append(f"{figures['steps_recorded']} steps are recorded; there should be {len(keys)}")
    return broken, figures


async def _recorded(store: Store, stepped: list[NewJob]) -> dict[str, RecordedStep]:
    """The steps of all jobs, by key."""
    return {f"{job.id}:{step.name}": step for job in stepped for step in await store.steps(job.id)}


async def _working(found: Trial) -> bool:
    """Whether the first jobs are done: a fault before that hits nothing."""
    stats = await found.stats()
    return stats is not None and stats.done > 0


async def _watch(found: Trial, curve: list[tuple[float, float]], began: float) -> None:
    while True:
        stats = await found.stats()
        if stats is not None:
            curve.append((time.monotonic() - began, stats.done))
        await asyncio.sleep(0.5)


def _parts(jobs: list[NewJob], size: int) -> list[list[NewJob]]:
    return [jobs[n : n + size] for n in range(0, len(jobs), size)]


async def _prepare(url: str) -> None:
    accounts = [(n, BALANCE) for n in range(ACCOUNTS)]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(_file(url))) as con, con:
            for statement in TABLES:
                con.execute(statement)
            con.executemany("insert into lab_account values (?, ?)", accounts)
        return
    con = await _connected(url)
    for statement in ("drop table if exists lab_account, lab_transfer", *TABLES):
        await con.execute(statement)
    await con.executemany("insert into lab_account values ($1, $2)", accounts)
    await con.close()


async def _read(url: str) -> OwnTables:
    balances, transfers = "select id, balance from lab_account", "select job, source, target, amount from lab_transfer"
    if url.startswith("sqlite"):
        return await beside(lambda: _read_file(url, balances, transfers))
    con = await _connected(url)
    try:
        return OwnTables(dict(await con.fetch(balances)), [tuple(row) for row in await con.fetch(transfers)])
    finally:
        await con.close()


def _read_file(url: str, balances: str, transfers: str) -> OwnTables:
    with closing(sqlite3.connect(_file(url))) as con:
        return OwnTables(dict(con.execute(balances)), list(con.execute(transfers)))


def _file(url: str) -> str:
    return url.partition("?")[0].removeprefix("sqlite:///")


async def _connected(url: str) -> Any:
    import asyncpg  # noqa: PLC0415  # only on PostgreSQL

    from hawser.stores.postgres.address import parse  # noqa: PLC0415

    return await asyncpg.connect(parse(url).hosts[0])
