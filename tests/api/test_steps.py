"""The steps of a job over HTTP and on the command line."""

from hawser import Hawser
from hawser.outcome import Dead, Failure, Held
from hawser.store import Arrival, NewStep, Settlement, Share, Store
from tests.api.conftest import fields


async def test_the_steps_of_a_job_are_shown_in_their_order(client, app: Hawser, store: Store):
    job = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@example.com"}})).json()["id"]
    assert (await client.get(f"/jobs/{job}/steps")).json() == {"steps": []}
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.record_steps(
        [
            NewStep(id=job, lease=run.lease, name="charge", value=b'{"paid":1}'),
            NewStep(id=job, lease=run.lease, name="cool-off", value=b"null", kind="sleep", lasts=60),
        ]
    )
    charge, sleep = (await client.get(f"/jobs/{job}/steps")).json()["steps"]
    assert (charge["name"], charge["kind"], charge["value"]) == ("charge", "step", {"paid": 1})
    assert (charge["lease"], charge["until"]) == (1, None)
    assert (sleep["kind"], sleep["value"]) == ("sleep", None)
    assert sleep["until"] > sleep["at"]
    assert (await client.get("/jobs/01a1ec9a-22e2-72e2-b051-38e2f73b8a83/steps")).status_code == 404


async def test_a_wait_that_is_over_has_its_start_and_its_end(client, app: Hawser, store: Store):
    job = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@example.com"}})).json()["id"]
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.settle([Settlement(job, run.lease, Held("packed", event="packed", timeout=60.0))])
    [lasting] = (await client.get(f"/jobs/{job}/steps")).json()["steps"]
    came = (await client.post("/events/packed", json={"body": {"parcels": 2}})).json()
    [again] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.arrive(Arrival(id=job, lease=again.lease, name="packed", event="packed"))
    [wait] = (await client.get(f"/jobs/{job}/steps")).json()["steps"]
    assert (wait["kind"], wait["value"], wait["event"]) == ("event", {"parcels": 2}, "packed")
    assert (wait["at"], wait["until"]) == (lasting["at"], came["at"])


async def test_a_dead_job_is_rewound(client, app: Hawser, store: Store):
    job = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@example.com"}})).json()["id"]
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.record_steps([NewStep(id=job, lease=run.lease, name=name, value=b"1") for name in ("charge", "mail")])
    early = await client.post(f"/jobs/{job}/rewind", json={"to": "charge"})
    assert (early.status_code, "only a dead or cancelled job can be rewound" in early.text) == (409, True)
    await store.settle([Settlement(job, run.lease, Dead(Failure("Drop: gone")))])
    wrong = await client.post(f"/jobs/{job}/rewind", json={"to": "pack"})
    assert (wrong.status_code, "it has no step 'pack'; it has 'charge', 'mail'" in wrong.text) == (409, True)
    assert (await client.post(f"/jobs/{job}/rewind", json={})).status_code == 400
    answer = await client.post(f"/jobs/{job}/rewind", json={"to": "charge", "reason": "wrong address"})
    assert (answer.status_code, answer.json()) == (200, {"id": job, "acted": "done"})
    assert [step["name"] for step in (await client.get(f"/jobs/{job}/steps")).json()["steps"]] == ["charge"]
    [record] = (await client.get("/audit?action=rewind")).json()["audit"]
    assert (record["target"], record["reason"]) == (job, "wrong address")
    assert (await client.post("/jobs/01a1ec9a-22e2-72e2-b051-38e2f73b8a83/rewind", json={"to": None})).status_code == 404


async def test_a_rewind_of_a_payment_wants_a_confirmation(client, app: Hawser, store: Store):
    job = (await client.post("/jobs", json={"task": "charge", "payload": {"order": 1}})).json()["id"]
    [run] = await store.claim([Share("default")], 1, "w1", 30)
    await store.record_steps([NewStep(id=job, lease=run.lease, name=name, value=b"1") for name in ("charge", "mail")])
    await store.settle([Settlement(job, run.lease, Dead(Failure("Drop: gone")))])

    async def kept() -> tuple[object, ...]:
        shown, steps = (await client.get(f"/jobs/{job}")).json(), (await client.get(f"/jobs/{job}/steps")).json()
        return shown["state"], shown["attempt"], steps, (await client.get("/audit")).json()["audit"]

    before = await kept()
    for unsaid in ({}, {"confirm": False}):
        refused = await client.post(f"/jobs/{job}/rewind", json={"to": "charge"} | unsaid)
        assert (refused.status_code, fields(refused)) == (409, ["confirm"])
        assert "task 'charge' asks for a confirmation" in refused.text
    assert await kept() == before
    answer = await client.post(f"/jobs/{job}/rewind", json={"to": "charge", "confirm": True})
    assert (answer.status_code, answer.json()) == (200, {"id": job, "acted": "done"})
    assert (await client.get(f"/jobs/{job}")).json()["state"] == "ready"
    assert [step["name"] for step in (await client.get(f"/jobs/{job}/steps")).json()["steps"]] == ["charge"]
