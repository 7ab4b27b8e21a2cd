"""`hawser steps`: what the runs of a job have achieved."""

import asyncio
import json
import re

from hawser.job import State
from hawser.outcome import Dead, Failure, Held
from hawser.store import Arrival, NewOutput, NewStep, Settlement, Share
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


def test_a_task_that_asks_for_it_is_rewound_only_when_confirmed(run: Run, given: Given, shop: str):
    id = given.ready("charge")
    [job] = given.ask(given.store.claim([Share("default")], 1, "w1", 30))
    given.ask(given.store.record_steps([NewStep(id=id, lease=job.lease, name=name, value=b"1") for name in ("charge", "mail")]))
    given.ask(given.store.settle([Settlement(id, job.lease, Dead(Failure("Drop: gone")))]))
    for where in (["--to", "charge"], ["--all"]):
        refused = run("rewind", id, *where, "--app", shop)
        assert refused.exit_code == 1
        assert f"cannot rewind job {id}: task 'charge' asks for a confirmation" in refused.stderr
        assert "then add --confirm" in refused.stderr
    assert given.job(id).state is State.DEAD
    assert [step.name for step in given.ask(given.store.steps(id))] == ["charge", "mail"]
    assert given.audit() == []
    assert "ready again, behind step charge" in run("rewind", id, "--to", "charge", "--app", shop, "--confirm").stdout
    assert given.job(id).state is State.READY
    assert [step.name for step in given.ask(given.store.steps(id))] == ["charge"]


def test_a_job_that_waits_is_not_rewound_and_its_state_is_said(run: Run, given: Given):
    id = given.ready()

    async def wait() -> None:
        store = make_store(given.url)
        await store.open()
        [job] = await store.claim([Share("default")], 1, "w1", 30)
        await store.settle([Settlement(id, job.lease, Held("packed", event="packed"))])
        await store.close()

    assert "it is ready; only a dead or cancelled job can be rewound" in run("rewind", id, "--to", "nope").stderr
    asyncio.run(wait())
    refused = run("rewind", id, "--to", "nope")
    assert refused.exit_code == 1
    assert "it is ready (held); only a dead or cancelled job can be rewound; cancel it first" in refused.stderr


def test_a_wait_that_is_over_has_its_start_and_its_end(run: Run, given: Given):
    id = given.ready()
    [job] = given.ask(given.store.claim([Share("default")], 1, "w1", 30))
    given.ask(given.store.settle([Settlement(id, job.lease, Held("packed", event="packed", timeout=7200.0))]))
    [lasting] = given.ask(given.store.steps(id))
    emitted = given.ask(given.store.emit("packed", b"1", 86_400.0))
    [again] = given.ask(given.store.claim([Share("default")], 1, "w1", 30))
    given.ask(given.store.arrive(Arrival(id=id, lease=again.lease, name="packed", event="packed")))
    [told] = json.loads(run("steps", id, "--json").stdout)["steps"]
    assert (told["kind"], told["event"], told["value"]) == ("event", "packed", 1)
    assert (told["at"], told["until"]) == (lasting.at.isoformat(), emitted.at.isoformat())
    _, row = run("steps", id).stdout.splitlines()
    assert re.fullmatch(rf"packed +event +{lasting.at:%F %T} UTC, .* ago +{emitted.at:%F %T} UTC, .* ago +2 +1 *", row)


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
