"""Plans of faults: by a seed, bounded, and honest about what was done."""

from __future__ import annotations

import random
import threading
import time

from hawser.lab.chaos.plan import Plan


def drawn(seed: int) -> list[str]:
    told: list[str] = []
    faults = {name: (weight, lambda dice: dice.random()) for name, weight in (("often", 3.0), ("seldom", 1.0), ("never", 0.0))}
    Plan(faults, seed=seed, every=(0, 0), tell=told.append).run(times=200)
    return told


def test_the_same_seed_draws_the_same_faults():
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_what_is_drawn_does_not_depend_on_what_the_victims_do():
    told: list[list[str]] = [[], []]
    for often, said in zip((1, 5), told, strict=True):
        faults = {name: (1.0, lambda dice, often=often: [dice.random() for _ in range(often)]) for name in "abc"}
        Plan(faults, seed=3, every=(0, 0), tell=said.append).run(times=50)
    assert told[0] == told[1]


def test_faults_come_by_their_weight():
    told = drawn(1)
    assert len(told) == 200
    assert "never" not in told
    assert told.count("often") > 2 * told.count("seldom") > 20


def test_a_fault_that_found_nobody_is_told_but_not_counted():
    told: list[str] = []

    def nobody(_: random.Random) -> bool:
        return False

    plan = Plan({"nobody": (1, nobody)}, seed=1, every=(0.001, 0.002), tell=told.append)
    assert plan.run(seconds=0.1) == {}
    assert told


def test_a_plan_ends_when_its_time_is_up_or_it_is_told_to():
    began = time.monotonic()
    assert Plan({"late": (1, lambda dice: None)}, seed=1, every=(60, 60)).run(seconds=0.1) == {}
    stop = threading.Event()
    stop.set()
    Plan({"late": (1, lambda dice: None)}, seed=1, every=(60, 60)).run(stop=stop)
    assert time.monotonic() - began < 5
