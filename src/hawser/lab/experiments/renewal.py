"""Jobs longer than their lease, with and without renewal: which run twice?"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from hawser.job import NewJob
from hawser.lab.app import LONG_VARIABLE
from hawser.lab.chaos.processes import PROGRAM
from hawser.lab.checker import Verdict
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.journal import JournalRun, Record, What, read
from hawser.lab.trial import trial

RENEWAL_LEASE_S: Final = 1.0
LONGER: Final = 4.0
"""Leases that a job takes."""

UNRENEWED: Final = (sys.executable, "-m", "hawser.lab.without_renewal")

NUMBERS: Final = {
    "jobs": Number(60, 12, "jobs longer than their lease"),
}


async def run(lab: Lab) -> Finding:
    jobs = int(lab.number("jobs"))
    with_, verdict, records = await _played(lab, jobs, renewed=True)
    without, _, _ = await _played(lab, jobs, renewed=False)
    broken = told(verdict)
    if with_["run_twice_at_once"] or with_["started_again"]:
        broken.append(f"with renewal {with_['started_again']} jobs were started again")
    if not without["given_away"]:
        broken.append("without renewal no job was given away while it ran: this experiment could not have shown a failure")
    return Finding(
        broken=broken,
        figures={"with_renewal": with_, "without_renewal": without, **verdict.counts},
        settings={"lease": RENEWAL_LEASE_S, "job_seconds": RENEWAL_LEASE_S * LONGER, "jobs": jobs},
        text=(
            f"{jobs} jobs in threads, each {LONGER:g} leases long, on two workers. With renewal every one was started once."
            f" Without it {without['given_away']} were given to another worker while the first run, which cannot be stopped, went"
            f" on: {without['run_twice_at_once']} ran twice at once, and {without['stale_effects_refused']} late effects were"
            " refused by the fence in the sink."
        ),
        plot=over_time("Jobs longer than their lease, renewed", records, 0.5),
    )


async def _played(lab: Lab, count: int, *, renewed: bool) -> tuple[dict[str, Any], Verdict, list[Record]]:
    program, long = PROGRAM if renewed else UNRENEWED, {LONG_VARIABLE: f"{LONGER * RENEWAL_LEASE_S:g}"}
    lab.show("with renewal" if renewed else "without renewal", 0, count)
    async with lab.place.fresh(timeout=60) as (url, store):
        async with trial(lab, url, store, lease=RENEWAL_LEASE_S, slots=16, program=program, environs=[long]) as found:
            jobs = [NewJob(task="longer_than_the_lease", body=b'{"seq":%d}' % n, max_attempts=4) for n in range(count)]
            runs = [JournalRun(job.id) for job in jobs]
            found.journal.write(What.ENQUEUE, runs)
            await store.enqueue(jobs)
            found.journal.write(What.ACCEPTED, runs)
            await found.drain()
        verdict = await found.verdict()
        records = read(found.folder / "journal")
    return (
        {
            "started_again": _again(records),
            "given_away": _given_away(records),
            "run_twice_at_once": _at_once(records),
            "stale_effects_refused": verdict.counts["stale_effects_refused"],
        },
        verdict,
        records,
    )


def _again(records: Sequence[Record]) -> int:
    starts: dict[str, int] = defaultdict(int)
    for record in records:
        if record.what is What.START:
            for run in record.runs:
                starts[run.id] += 1
    return sum(times > 1 for times in starts.values())


def _given_away(records: Sequence[Record]) -> int:
    """Jobs that were claimed again before their first run had ended, by the journal. The next run need not have begun: a job
    whose run was lost runs in a process of its own, which may take longer to start than an unrenewed lease lasts."""
    claims: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, int] = {}
    for record in records:
        for run in record.runs:
            if record.what is What.CLAIMED:
                claims[run.id].append(record.at)
            elif record.what is What.END:
                ends.setdefault(run.id, record.at)
    return sum(len(at) > 1 and sorted(at)[1] < ends.get(id, at[-1] + 1) for id, at in claims.items())


def _at_once(records: Sequence[Record]) -> int:
    """Jobs of which one run began before another had ended, by the journal."""
    spans: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.what in (What.START, What.END):
            for run in record.runs:
                spans[run.id][run.lease].append(record.at)
    found = 0
    for by_lease in spans.values():
        runs = sorted((min(times), max(times) if len(times) > 1 else float("inf")) for times in by_lease.values())
        found += any(second[0] < first[1] for first, second in pairwise(runs))
    return found
