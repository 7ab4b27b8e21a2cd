"""What `hawser lab growth` judges by, with forged rows; one of its rows as a user runs it; and what it needs on the way."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from hawser.lab import bottleneck
from hawser.lab.experiments.growth import DIMENSIONS, CostBound, too_dear
from hawser.lab.feeder import FED_BYTES, Feeder, JobMix
from hawser.lab.schedule_cost import not_once
from hawser.lab.store_under_test import opened
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.value.payload import MAX_PAYLOAD

BOUND = CostBound(1.5, 1.2)


def row(queues: int, cpu_us: float, log_bytes: int = 1_000) -> dict[str, Any]:
    return {"queues": queues, "cpu_us": cpu_us, "log_bytes": log_bytes}


def test_costs_within_their_bound_hold():
    assert too_dear("queues", BOUND, [row(1, 40), row(10, 59), row(100, 41)], judged=True) == []


def test_each_step_that_costs_more_is_named_with_its_bound():
    cpu, log = too_dear("queues", BOUND, [row(1, 40), row(10, 61), row(1_000, 50, 1_201)], judged=True)
    assert cpu == "queues: a job cost 61 µs of CPU at 10, and 40 at 1; the bound is 60"
    assert log == "queues: a job cost 1,201 bytes of log at 1,000, and 1,000 at 1; the bound is 1,200"


def test_payloads_may_cost_by_their_bytes():
    bound = CostBound(1.5, 1.3, cpu_per_kb=10, log_per_kb=2_000)
    rows: list[dict[str, Any]] = [
        {"bytes": 100, "cpu_us": 40, "log_bytes": 900},
        {"bytes": 60_100, "cpu_us": 660, "log_bytes": 121_000},
    ]
    assert too_dear("bytes", bound, rows, judged=True) == []
    rows[1]["cpu_us"] = 661
    [said] = too_dear("bytes", bound, rows, judged=True)
    assert said.endswith("the bound is 660")


def test_a_quick_run_judges_no_costs_but_ticks_that_did_not_fire():
    rows: list[dict[str, Any]] = [
        {"schedulers": 1, "cpu_us": 1, "log_bytes": 0, "amiss": None},
        {"schedulers": 4, "cpu_us": 9, "amiss": "3 of 4"},
    ]
    assert too_dear("schedulers", BOUND, rows, judged=False) == ["schedulers: 3 of 4"]


def test_a_tick_that_fired_twice_or_in_part_is_said_but_the_last_may_be_cut_off():
    first, second, last = (datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2, 3))
    assert not_once({first: 10, second: 10, last: 4}, 10) is None
    assert not_once({first: 10, second: 11, last: 10}, 10) == "1 ticks of 10 schedules made 11 jobs, and such"


def test_jobs_go_over_queues_and_tasks_by_turns_with_a_payload_of_the_size_asked_for():
    jobs = JobMix(queues=10, tasks=10, payload=MAX_PAYLOAD).take(100)
    assert {job.queue for job in jobs} == {f"queue{number}" for number in range(10)}
    assert {job.task for job in jobs} == {f"noop{number}" for number in range(10)}
    assert all(MAX_PAYLOAD - 10 <= len(job.body) <= MAX_PAYLOAD for job in jobs)
    assert JobMix(payload=MAX_PAYLOAD).at_once * MAX_PAYLOAD <= FED_BYTES


async def test_a_feeder_keeps_the_backlog_as_deep_as_it_is(tmp_path):
    mix = JobMix()
    with opened("sqlite", tmp_path) as place:
        async with place.fresh() as (_, store):
            await store.enqueue(mix.take(300))
            async with Feeder(store, mix):
                for _ in range(5):
                    runs = await store.claim([Share("default")], 100, "w", 60)
                    await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs])
                    while (await store.stats()).ready < 300:
                        await asyncio.sleep(0.01)
            assert (await store.stats()).ready == 300


def test_a_server_of_the_same_kind_that_is_not_ours_is_not_counted(tmp_path):
    """Two experiments on one machine must not add up."""
    with opened("redis", tmp_path) as ours, opened("redis", tmp_path) as other:
        kinds = {pid: kind for pid, (kind, _) in bottleneck._cpu(ours).items()}
        assert ours.server is not None
        assert other.server is not None
        assert kinds[ours.server.pid] == "server"
        assert kinds[os.getpid()] == "other"
        assert kinds[other.server.pid] == "worker", "as a child of ours it is no stranger, but it is not the store's server"


@pytest.mark.parametrize("only", range(1, len(DIMENSIONS) + 1))
def test_one_row_alone_has_its_figures_and_its_plot(only, tmp_path):
    words = [sys.executable, "-m", "hawser.cli", "lab", "growth", "--quick", "--set", f"only={only}", "--out", str(tmp_path)]
    words += ["--set", "waiting=12000", "--set", "schedules=20", "--set", "seconds=1", "--json"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    [rows] = found["figures"].values()
    assert found["figures"].keys() == {DIMENSIONS[only - 1].name}
    assert len(rows) > 1
    assert all(row["cpu_us"] > 0 or row.get("fired") for row in rows), "twenty ticks may cost less than the kernel counts"
    assert (tmp_path / "growth-sqlite" / "plot.svg").read_text().startswith("<svg")
