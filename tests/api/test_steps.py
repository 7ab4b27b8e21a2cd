"""The steps of a job over HTTP and on the command line."""

from hawser import Hawser
from hawser.outcome import Dead, Failure
from hawser.store import NewStep, Settlement, Share, Store


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
