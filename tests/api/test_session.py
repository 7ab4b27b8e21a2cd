"""A key becomes a cookie of a browser: what it may, how long it lives, and that no other page acts with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import httpx
import pytest

from hawser import Hawser
from hawser.api.identity import BELIEVED_FOR, COOKIE
from hawser.api.keyless import OwnUser
from hawser.api.server import Api
from hawser.api.session import SESSION_LASTS_S
from hawser.errors import ConfigError
from hawser.store import Actor, Store
from hawser.store.api_key import Role, is_session_name
from hawser.testing.clock import ManualClock
from tests.api.conftest import bearer, client_of

OURS = {"sec-fetch-site": "same-origin", "content-type": "application/json"}


@pytest.fixture
async def closed(app: Hawser, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    api = app.asgi(require_key=True, upkeep=False)
    async with client_of(api) as client:
        yield client
    await api.stop()


async def logged_in(client: httpx.AsyncClient, store: Store, *roles: Role) -> httpx.Response:
    answer = await client.post("/session", headers=await bearer(store, *roles))
    assert answer.status_code == 201, answer.text
    send_cookie(client)
    return answer


def send_cookie(client: httpx.AsyncClient) -> None:
    """As a browser does; httpx keeps the cookies of `localhost` to itself."""
    client.headers["cookie"] = f"{COOKIE}={client.cookies[COOKIE]}"


async def parent_id(store: Store) -> str:
    [key] = [record.key for record in await store.api_keys() if record.key.name == "test"]
    return key.id


async def test_a_session_has_the_rights_of_its_key_and_no_more(closed: httpx.AsyncClient, store: Store):
    await logged_in(closed, store, Role.VIEWER)
    me = (await closed.get("/me")).json()
    assert me == {**me, "roles": ["viewer"], "session": True, "read_only": False}
    assert me["name"] == f"test:{await parent_id(store)}"
    assert (await closed.get("/overview")).status_code == 200
    assert (await closed.get("/audit")).status_code == 403
    assert (await closed.post("/admin/queues/mail/pause", headers=OURS, json={})).status_code == 403


async def test_the_cookie_is_kept_from_scripts_and_other_sites(closed: httpx.AsyncClient, store: Store):
    answer = await logged_in(closed, store, Role.ADMIN)
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Strict", f"{SESSION_LASTS_S:.0f}")
    assert cookie["path"] == ""
    """The browser's own default is the mount."""
    assert cookie["secure"] == ""


async def test_over_tls_the_cookie_is_for_tls_only(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://localhost") as client:
        answer = await client.post("/session", headers=await bearer(store, Role.ADMIN))
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["secure"] is True
    await api.stop()


async def test_an_action_of_a_session_is_signed_by_its_key(closed: httpx.AsyncClient, store: Store):
    await logged_in(closed, store, Role.OPERATOR)
    assert (await closed.post("/admin/queues/mail/pause", headers=OURS, json={"reason": "test"})).status_code == 200
    assert (await store.audit())[0].by == f"test:{await parent_id(store)}"


async def test_the_key_itself_is_not_in_the_cookie_and_the_cookie_is_no_key(closed: httpx.AsyncClient, store: Store):
    header = await bearer(store, Role.ADMIN)
    await closed.post("/session", headers=header)
    text = closed.cookies[COOKIE]
    assert text not in header["authorization"]
    closed.cookies.clear()
    assert (await closed.get("/me", headers={"authorization": f"Bearer {text}"})).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
    ],
)
async def test_another_page_cannot_act_with_the_session(closed: httpx.AsyncClient, store: Store, headers: dict[str, str]):
    await logged_in(closed, store, Role.ADMIN)
    answer = await closed.post("/admin/queues/mail/pause", headers={"content-type": "application/json", **headers}, content="{}")
    assert answer.status_code == 403
    assert await store.pauses() == []


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
async def test_a_session_sends_json_and_says_so(closed: httpx.AsyncClient, store: Store, headers: dict[str, str]):
    """A form, or a blob without a type, can be sent by any page."""
    await logged_in(closed, store, Role.ADMIN)
    answer = await closed.post("/admin/queues/mail/pause", headers={"sec-fetch-site": "same-origin", **headers}, content=b"{}")
    assert answer.status_code == 415
    assert await store.pauses() == []


async def test_without_the_browsers_header_the_origin_must_be_ours(closed: httpx.AsyncClient, store: Store):
    await logged_in(closed, store, Role.ADMIN)
    headers = {"origin": "http://localhost", "content-type": "application/json"}
    assert (await closed.post("/admin/queues/mail/pause", headers=headers, json={})).status_code == 200


async def test_logging_out_ends_the_session_also_for_who_has_copied_the_cookie(app: Hawser, store: Store):
    """On each server within a second, as a revoked key."""
    api, other = app.asgi(require_key=True, upkeep=False), app.asgi(require_key=True, upkeep=False)
    async with client_of(api) as client, client_of(other) as thief:
        await logged_in(client, store, Role.ADMIN)
        copied = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
        answer = await client.request("DELETE", "/session", headers={"sec-fetch-site": "same-origin"})
        assert answer.json() == {"ended": True}
        assert COOKIE not in client.cookies
        assert (await thief.get("/me", headers=copied)).status_code == 401
    await api.stop()
    await other.stop()


async def test_a_session_ends_with_its_key(closed: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch: pytest.MonkeyPatch):
    await logged_in(closed, store, Role.ADMIN)
    assert (await closed.get("/me")).status_code == 200
    await store.revoke_api_key(await parent_id(store), Actor())
    monkeypatch.setattr("hawser.api.identity.BELIEVED_FOR", -1.0)
    """Keys are read anew at once: what a second would do."""
    assert BELIEVED_FOR < 1
    assert (await closed.get("/me")).status_code == 401


async def test_a_session_lasts_for_half_a_day(closed: httpx.AsyncClient, store: Store):
    await logged_in(closed, store, Role.ADMIN)
    [child] = [record for record in await store.api_keys() if is_session_name(record.key.name)]
    assert child.expires_at is not None
    assert (child.expires_at - child.created_at).total_seconds() == SESSION_LASTS_S == 12 * 3600


async def test_a_session_logs_nobody_in(closed: httpx.AsyncClient, store: Store):
    await logged_in(closed, store, Role.ADMIN)
    answer = await closed.post("/session", headers=OURS)
    assert answer.status_code == 400
    assert len(await store.api_keys()) == 2


async def test_a_cookie_that_is_over_makes_a_caller_without_a_key(api: Api, app: Hawser):
    async with client_of(api) as client:
        for text in ("x", "hawser_000000000000_00ffffffff"):
            assert (await client.get("/me", headers={"cookie": f"{COOKIE}={text}"})).json()["name"] == "local"


async def test_a_browser_of_another_user_logs_in_with_the_token_of_the_server(app: Hawser, store: Store):
    keyless = OwnUser(lambda _client, _server: False)
    api = Api(app, keyless, upkeep=False)
    async with client_of(api) as client:
        assert (await client.get("/me")).status_code == 401
        answer = await client.post("/session", headers={"authorization": f"Bearer {keyless.token}"})
        assert answer.status_code == 201
        send_cookie(client)
        me = (await client.get("/me")).json()
        assert (me["name"], me["session"]) == ("local", True)
        refused = await client.post("/admin/queues/mail/pause", headers={"origin": "http://evil.example"}, json={})
        assert refused.status_code == 403
        assert (await client.request("DELETE", "/session", headers=OURS)).json() == {"ended": True}
        assert COOKIE not in client.cookies
    await api.stop()


async def test_one_may_log_in_to_a_read_only_server(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False, read_only=True)
    async with client_of(api) as client:
        await logged_in(client, store, Role.ADMIN)
        assert (await client.get("/me")).json()["read_only"] is True
        answer = await client.post("/admin/queues/mail/pause", headers=OURS, json={})
        assert answer.status_code == 403
    await api.stop()


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path, clock: ManualClock) -> Hawser:
    """Keys are the same in every store: their own contract says so."""
    from tests.api.conftest import make_app, new_store

    return make_app(await new_store(request.param, tmp_path), clock)


@pytest.fixture
async def behind_proxy(app: Hawser, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """Its Host is `localhost`, as a proxy asks it, and its scheme is plain http."""
    api = app.asgi(require_key=True, upkeep=False, public_url="https://Jobs.example.com:443/hawser")
    async with client_of(api) as client:
        yield client
    await api.stop()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://jobs.example.com", 200),
        ("https://jobs.example.com:8443", 403),
        ("http://localhost", 403),
        ("https://evil.example", 403),
    ],
)
async def test_behind_a_proxy_pages_of_the_public_url_alone_may_act(
    behind_proxy: httpx.AsyncClient, store: Store, origin: str, status: int
):
    await logged_in(behind_proxy, store, Role.ADMIN)
    headers = {"origin": origin, "content-type": "application/json"}
    assert (await behind_proxy.post("/admin/queues/mail/pause", headers=headers, json={})).status_code == status


async def test_the_cookie_of_a_public_url_with_tls_is_sent_over_tls_only(behind_proxy: httpx.AsyncClient, store: Store):
    answer = await logged_in(behind_proxy, store, Role.ADMIN)
    assert "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "url",
    [
        "jobs.example.com",
        "ftp://jobs.example.com",
        "https://",
        "https://a b",
        "https://ann@jobs.example.com",
        "https://x?y",
        "http://h:x",
    ],
)
def test_a_public_url_is_one_of_a_page(app: Hawser, url: str):
    with pytest.raises(ConfigError, match=r"public_url: .* is not where a browser finds a page; use for example"):
        app.asgi(public_url=url)
