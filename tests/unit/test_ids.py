"""Job ids."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from hawser.value.ids import is_id, new_id


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_it():
    before = time.time_ns() // 1_000_000
    id = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert (id.version, id.variant) == (7, uuid.RFC_4122)
    assert before <= id.int >> 80 <= after


def test_ids_of_a_process_rise():
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_ids_of_threads_differ():
    start = threading.Barrier(8)

    def make(_: int) -> list[str]:
        start.wait(30)
        return [new_id() for _ in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        made = [id for some in pool.map(make, range(8)) for id in some]
    assert len(set(made)) == len(made)


def test_ids_rise_over_a_clock_step_back(monkeypatch):
    first = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert first < new_id() < new_id()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "01890000-0000-4000-8000-000000000000",
        "01890000-0000-7000-c000-000000000000",
        "0189000000007000800000000000000",
        "01890000-0000-7000-8000-00000000000G",
        "01890000-0000-7000-8000-000000000000\n",
        "01890000-0000-7ABC-8000-000000000000",
    ],
)
def test_what_is_no_id_is_told_apart(text):
    assert not is_id(text)
    assert is_id(new_id())
