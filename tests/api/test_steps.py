"""The steps of a job over HTTP and on the command line."""

from hawser import Hawser
from hawser.store import NewStep, Share, Store


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
