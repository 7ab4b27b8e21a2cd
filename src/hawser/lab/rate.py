"""How fast a backlog is drained with some setting, and what that costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hawser.lab.bound import metered
from hawser.lab.experiment import Lab
from hawser.lab.load import NewClaims, fill, percentile, quiet, rate, wait_done, workers


async def drained(lab: Lab, jobs: int, *, processes: int, slots: int, claim_batch: int) -> dict[str, Any]:
    """Drain a backlog of jobs that do nothing: its rate, claim times and costs."""
    async with lab.place.fresh() as (url, store):
        await fill(store, jobs, quiet)
        with tempfile.TemporaryDirectory(dir=lab.folder) as name:
            with workers(url, Path(name), processes=processes, slots=slots, claim_batch=claim_batch) as crew:
                # Measured from when they are at it: starting processes is no part of the rate.
                started = (await wait_done(store, 1, crew, quiet, ""))[-1][1]
                async with metered(lab.place, url) as meter:
                    seen = await wait_done(store, jobs, crew, quiet, "")
            claims = NewClaims(Path(name)).seconds()
        stats = await store.stats("default")
    return {
        "not_done_once": abs(jobs - stats.done) + stats.ready + stats.running + stats.dead,
        "drain_per_s": rate(seen),
        "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
        "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
        **meter.require().per_job(jobs - started),
    }
