"""`hawser steps`: what the runs of a job have achieved."""

import asyncio
import json

from hawser.outcome import Dead, Failure
from hawser.store import NewOutput, NewStep, Settlement, Share
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


def test_a_dead_job_is_rewound(run: Run, given: Given):
    id = given.ready()

    async def die() -> None:
        store = make_store(given.url)
        await store.open()
        [job] = await store.claim([Share("default")], 1, "w1", 30)
        await store.record_steps([NewStep(id=id, lease=job.lease, name=name, value=b"1") for name in ("charge", "mail")])
        await store.settle([Settlement(id, job.lease, Dead(Failure("Drop: gone")))])
        await store.close()

    asyncio.run(die())
    assert "--to STEP, or --all" in run("rewind", id).stderr
    wrong = run("rewind", id, "--to", "pack")
    assert (wrong.exit_code, "it has no step 'pack'; it has 'charge', 'mail'" in wrong.stderr) == (1, True)
    assert "ready again, behind step charge" in run("rewind", id, "--to", "charge").stdout
    told = json.loads(run("steps", id, "--json").stdout)["steps"]
    assert [step["name"] for step in told] == ["charge"]
    assert run("rewind", id, "--all").exit_code == 1, "it waits to run"


def test_the_output_of_a_job_is_printed(run: Run, given: Given):
    id = given.ready()
    assert "the job has written nothing" in run("jobs", "output", id).stderr

    async def talk() -> None:
        store = make_store(given.url)
        await store.open()
        [job] = await store.claim([Share("default")], 1, "w1", 30)
        chunks = b'"Once upon "', b'"a time\\n\\u001b[31m"', b'{"turn":2}', b'"the end"'
        await store.write_output([NewOutput(id=id, lease=job.lease, attempt=1, first=0, chunks=chunks)])
        await store.settle([Settlement(id, job.lease, Dead(Failure("Drop: gone")))])
        await store.close()

    asyncio.run(talk())
    printed = run("jobs", "output", id).stdout
    assert printed == 'Once upon a time\n\\x1b[31m\n{"turn":2}\nthe end\n', "no terminal obeys what a job has written"
    assert run("jobs", "output", id, "--follow").stdout == printed
    told = json.loads(run("jobs", "output", id, "--after", "2", "--json").stdout)["output"]
    assert [(chunk["number"], chunk["value"]) for chunk in told] == [(3, {"turn": 2}), (4, "the end")]
    assert run("jobs", "output", id, "--json", "--follow").exit_code == 2
    assert run("jobs", "output", "01a1ec9a-22e2-72e2-b051-38e2f73b8a83").exit_code == 1
