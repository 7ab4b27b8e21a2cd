from collections import Counter

import msgspec

from hawser import NewJob
from hawser.lab.app import app
from hawser.lab.generator import ALL_POISON, MIXED, WITH_ONCE, LoadPlan


def shape(jobs: list[NewJob]) -> list[tuple[object, ...]]:
    return [(job.task, job.body, job.max_attempts) for job in jobs]


def test_the_same_seed_makes_the_same_load_and_another_seed_another():
    assert shape(LoadPlan(7).take(500)) == shape(LoadPlan(7).take(500))
    assert shape(LoadPlan(7).take(500)) != shape(LoadPlan(8).take(500))


def test_the_load_does_not_depend_on_how_it_is_taken_by_its_numbers():
    load = LoadPlan(1)
    numbers = [msgspec.json.decode(job.body)["seq"] for size in (1, 10, 100) for job in load.take(size)]
    assert numbers == list(range(111))


def test_the_mix_has_its_shares():
    counts = Counter(job.task for job in LoadPlan(1).take(20_000))
    for task, share in MIXED.items():
        assert abs(counts[task] / 200 - share) < 1.5


def test_every_job_is_one_that_the_app_takes():
    for job in LoadPlan(1, WITH_ONCE, ALL_POISON).take(500):
        task = app.tasks[job.task]
        assert task.job(**msgspec.json.decode(job.body)).body is not None
