"""Jobs that expire, over HTTP."""

from datetime import datetime

import httpx
import pytest

from hawser import Hawser
from tests.api.conftest import fields


async def test_a_job_is_given_an_expiry(client: httpx.AsyncClient, app: Hawser):
    answer = await client.post("/jobs", json={"task": "job", "payload": {}, "expires": 600})
    assert answer.status_code == 201
    shown = (await client.get(f"/jobs/{answer.json()['id']}")).json()
    expires_at, enqueued_at = (datetime.fromisoformat(shown[name]) for name in ("expires_at", "enqueued_at"))
    assert (expires_at - enqueued_at).total_seconds() == 600
    assert f"expires at {expires_at:%Y-%m-%d %H:%M:%S} UTC" in shown["why"]


@pytest.mark.parametrize("expires", [0, -5, "soon", None, 1e12])
async def test_a_wrong_expiry_is_named(client: httpx.AsyncClient, expires: object):
    answer = await client.post("/jobs", json={"task": "job", "payload": {}, "expires": expires})
    assert answer.status_code == 400
    assert fields(answer) == ["expires"]
