"""The supervisor's own turns."""

import time

from hawser.worker.options import checked
from hawser.worker.supervisor import Supervisor


async def test_a_task_runs_apart_only_until_its_time_is_over():
    supervisor = Supervisor("nobody:app", checked())
    supervisor._dangerous = {"over": time.monotonic() - 1, "fresh": time.monotonic() + 60}
    await supervisor.guard()
    assert supervisor._notice.news() == frozenset({"fresh"})
