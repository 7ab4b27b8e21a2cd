"""`hawser bench`: a store in figures."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import msgspec

from hawser.cli import show
from hawser.cli.progress import end_in_order, progress
from hawser.lab.bench import bench as measure
from hawser.lab.load import stoppable
from hawser.lab.store_under_test import lent
from hawser.worker.loop import run_loop


@click.command()
@click.option(
    "--store",
    metavar="URL",
    help="The store to measure; it keeps the jobs. sqlite, postgres, redis or 'redis?lanes=streams' are new and removed."
    " [default: sqlite]",
)
@click.option("--jobs", type=click.IntRange(1_000, 10_000_000), default=50_000, show_default=True, help="Jobs of each phase.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes.")
@click.option("--slots", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Slots of each process.")
@click.option("--claim-batch", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Most jobs in one claim.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(store: str | None, jobs: int, processes: int, slots: int, claim_batch: int, as_json: bool) -> None:
    """Measure a store with jobs that do nothing: enqueue, drain, both at once, claim and pickup times, losses.

    Exit code 1 when an accepted job was lost or started twice.
    """
    end_in_order()
    with (
        tempfile.TemporaryDirectory(prefix="hawser-bench-") as folder,
        lent(store, Path(folder), "bench") as url,
        progress() as shown,
    ):
        work = measure(url, jobs=jobs, processes=processes, slots=slots, claim_batch=claim_batch, show=shown)
        figures = run_loop(stoppable(work, shown))
    if as_json:
        show.document(msgspec.to_builtins(figures))
    else:
        show.facts((name.replace("_", " "), str(value)) for name, value in msgspec.structs.asdict(figures).items())
    if figures.lost or figures.duplicated:
        sys.exit(1)
