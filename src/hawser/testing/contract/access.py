"""Access: API keys, kept by their hashes."""

from __future__ import annotations

from hawser.store import Store
from hawser.store.api_key import ApiKey, Role, issue
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, now


def a_key(name: str = "shop", role: Role = Role.PRODUCER, **fields: object) -> ApiKey:
    return issue(name, (role,), **fields).key  # type: ignore[arg-type]  # as the tests give them


async def test_a_key_is_kept_whole(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """Keep a new key, which expires after so many seconds, or never; putting it again changes nothing."""
    key = a_key("shöp 'x'", Role.OPERATOR, tasks=("send", "pay"), rate=2.5)
    await store.put_api_key(key, None, SIGN)
    store = await reopen()
    [record] = await store.api_keys()
    assert record.key == key
    assert (record.created_at, record.expires_at, record.revoked_at, record.used_at) == (now(clock), None, None, None)
    assert record.live


async def test_a_key_expires_by_the_clock_of_the_store(store: Store, clock: ManualClock) -> None:
    """Keep a new key, which expires after so many seconds, or never; putting it again changes nothing."""
    await store.put_api_key(a_key(), 60.0, SIGN)
    await store.put_api_key(a_key(), None, SIGN)
    clock.advance(59)
    assert [record.live for record in await store.api_keys()] == [True, True]
    clock.advance(1)
    short, _ = sorted(await store.api_keys(), key=lambda record: record.live)
    assert (short.live, short.expires_at) == (False, now(clock))
    clock.advance(10_000)
    assert sum(record.live for record in await store.api_keys()) == 1


async def test_putting_a_key_again_changes_nothing(store: Store, clock: ManualClock) -> None:
    """Keep a new key, which expires after so many seconds, or never; putting it again changes nothing."""
    key = a_key()
    await store.put_api_key(key, 60.0, SIGN)
    await store.revoke_api_key(key.id, SIGN)
    before = await store.api_keys()
    clock.advance(5)
    await store.put_api_key(key, None, SIGN)
    assert await store.api_keys() == before
    assert [record.action for record in await store.audit()] == ["revoke_key", "create_key"]


async def test_keys_are_listed_oldest_first_whatever_became_of_them(store: Store, clock: ManualClock) -> None:
    """All keys, oldest first, the expired and revoked ones too."""
    assert await store.api_keys() == []
    made = []
    for lasts in (None, 1.0, None):
        made.append(a_key())
        await store.put_api_key(made[-1], lasts, SIGN)
        clock.advance(1)
    await store.revoke_api_key(made[0].id, SIGN)
    records = await store.api_keys()
    assert [record.key for record in records] == made
    assert [record.live for record in records] == [False, False, True]


async def test_a_revoked_key_is_over_at_once_and_once(store: Store, clock: ManualClock, second: Opener) -> None:
    """End a key at once; False, and no record, when there is none or it was revoked before."""
    key, other = a_key(), a_key()
    await store.put_api_key(key, None, SIGN)
    await store.put_api_key(other, None, SIGN)
    clock.advance(5)
    assert await store.revoke_api_key(key.id, SIGN)
    revoked_at = now(clock)
    clock.advance(5)
    assert not await store.revoke_api_key(key.id, SIGN)
    assert not await store.revoke_api_key("none", SIGN)
    records = {record.key.id: record for record in await (await second()).api_keys()}
    assert (records[key.id].live, records[key.id].revoked_at) == (False, revoked_at)
    assert records[other.id].live
    assert [(record.action, record.target) for record in await store.audit()] == [
        ("revoke_key", f"key:{key.id}"),
        ("create_key", f"key:{other.id}"),
        ("create_key", f"key:{key.id}"),
    ]


async def test_the_last_use_of_a_key_is_noted(store: Store, clock: ManualClock) -> None:
    """Note that these keys were used now."""
    key, idle = a_key(), a_key()
    await store.put_api_key(key, None, SIGN)
    await store.put_api_key(idle, None, SIGN)
    clock.advance(7)
    await store.use_api_keys([key.id, "none"])
    used = {record.key.id: record.used_at for record in await store.api_keys()}
    assert used == {key.id: now(clock), idle.id: None}
    await store.use_api_keys([])
