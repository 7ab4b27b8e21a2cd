"""`hawser steps`: what the runs of a job have achieved."""

import asyncio
import json

from hawser.store import NewStep, Share
from hawser.stores import make_store
from tests.cli.conftest import Run
from tests.cli.given import Given


def test_steps_are_listed_in_their_order(run: Run, given: Given):
    id = given.ready()

    async def record() -> None:
        store = make_store(given.url)
        await store.open()
        [job] = await store.claim([Share("default")], 1, "w1", 30)
        assert job.id == id
        await store.record_steps(
            [
                NewStep(id=id, lease=job.lease, name="charge", value=b'{"paid":1}'),
                NewStep(id=id, lease=job.lease, name="cool-off", value=b"null", kind="sleep", lasts=86_400),
            ]
        )
        await store.close()

    assert "the job has recorded no steps" in run("steps", id).stderr
    asyncio.run(record())
    shown = run("steps", id).stdout
    assert shown.index("charge") < shown.index("cool-off")
    assert '{"paid":1}' in shown
    told = json.loads(run("steps", id, "--json").stdout)["steps"]
    assert [(step["name"], step["kind"], step["value"]) for step in told] == [
        ("charge", "step", {"paid": 1}),
        ("cool-off", "sleep", None),
    ]
    assert run("steps", "01a1ec9a-22e2-72e2-b051-38e2f73b8a83").exit_code == 1
