"""Logins with wrong keys are few."""

from __future__ import annotations

import httpx

from hawser import Hawser
from hawser.api.login_guard import MAX_ADDRESSES, MOST_WRONG_KEYS, WRONG_KEYS_WINDOW_S, LoginGuard
from hawser.api.problem import Problem
from hawser.store import Store
from hawser.store.api_key import Role
from tests.api.conftest import bearer, client_of

WRONG = {"authorization": "Bearer hwk_nobody_has_this"}


async def test_five_wrong_keys_a_minute_and_no_more(app: Hawser, store: Store):
    api = app.asgi(upkeep=False)
    right = await bearer(store, Role.VIEWER)
    async with client_of(api, "10.0.0.1") as client, client_of(api, "10.0.0.2") as other:
        for _ in range(MOST_WRONG_KEYS):
            assert (await client.post("/session", headers=WRONG)).status_code == 401
        refused = await client.post("/session", headers=right)
        assert (refused.status_code, "wrong keys" in refused.text) == (429, True)
        assert 0 < int(refused.headers["retry-after"]) <= WRONG_KEYS_WINDOW_S
        assert (await other.post("/session", headers=right)).status_code == 201, "another address is not held back"
        assert (await client.get("/queues", headers=right)).status_code == 200, "who has a key already goes on"
    await api.stop()


def tried(guard: LoginGuard, address: str, *, wrong: bool = True) -> int:
    try:
        with guard.watched({"client": (address, 1)}):
            if wrong:
                raise Problem(401, "no")
    except Problem as problem:
        return problem.status
    return 200


def test_after_a_minute_it_is_open_again_and_addresses_are_forgotten():
    now = [0.0]
    guard = LoginGuard(lambda: now[0])
    assert [tried(guard, "a") for _ in range(7)] == [401] * 5 + [429] * 2
    now[0] = WRONG_KEYS_WINDOW_S + 0.1
    assert tried(guard, "a", wrong=False) == 200
    for number in range(MAX_ADDRESSES + 10):
        tried(guard, f"b{number}")
    assert len(guard._wrong) == MAX_ADDRESSES  # what it keeps is bounded


async def test_requests_without_a_key_are_not_counted(client: httpx.AsyncClient):
    for _ in range(MOST_WRONG_KEYS + 1):
        assert (await client.post("/session")).status_code == 400
