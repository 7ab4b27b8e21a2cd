"""Which server is taken for the primary: the newest timeline, and never an older one again."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from hawser.stores.postgres import dial
from hawser.stores.postgres.errors import OldPrimary
from hawser.stores.postgres.primary import UNKNOWN_STANDING, Primary, Standing


def on(timeline: int, system: int = 7) -> Standing:
    return Standing(system, timeline, in_recovery=False)


class Silent:
    """Stands for a connection; only whether it was closed matters here."""

    def __init__(self) -> None:
        self.is_open = True

    def terminate(self) -> None:
        self.is_open = False


class Hosts:
    """Servers that say who they are, refuse, or say nothing."""

    def __init__(self, **says: Standing | BaseException | None) -> None:
        self.says = says
        self.made: list[Any] = []

    async def reach(self, host: str) -> dial.DialAnswer:
        said = self.says[host]
        if said is None:
            await asyncio.Event().wait()
        if isinstance(said, BaseException):
            raise said
        assert said is not None
        self.made.append(Silent())
        return dial.DialAnswer(host, self.made[-1], said)

    async def dialled(self, primary: Primary) -> str:
        answer = await dial.dial(tuple(self.says), primary, self.reach)
        primary.accept(answer.host, answer.standing)
        assert [con for con in self.made if con.is_open] == [answer.con]
        answer.con.terminate()
        return answer.host


async def test_of_two_that_take_themselves_for_the_primary_the_newer_is_it():
    assert await Hosts(a=on(3), b=on(4)).dialled(Primary()) == "b"
    assert await Hosts(a=on(4), b=on(3)).dialled(Primary()) == "a"


async def test_a_primary_that_was_replaced_is_not_taken_again_though_it_alone_answers():
    primary = Primary()
    assert primary.accept("a", on(3)) is False
    assert primary.accept("b", on(4)) is True
    with pytest.raises(OldPrimary, match="timeline 3, and timeline 4 was promoted since; stop it or make it a standby"):
        await Hosts(a=on(3), b=ConnectionRefusedError()).dialled(primary)
    assert primary.host == "b"


async def test_a_host_that_says_nothing_does_not_keep_the_others_waiting(monkeypatch):
    monkeypatch.setattr(dial, "ALONE", 0.01)
    monkeypatch.setattr(dial, "OTHER_HOSTS_WITHIN_S", 0.01)
    primary = Primary()
    primary.accept("a", on(3))
    async with asyncio.timeout(5):
        assert await Hosts(a=None, b=on(4)).dialled(primary) == "b"
        assert await Hosts(a=None, b=on(4)).dialled(Primary()) == "b"


async def test_what_a_server_said_is_told_rather_than_that_another_was_not_there():
    said = asyncpg.InvalidPasswordError("no")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await Hosts(a=said, b=ConnectionRefusedError()).dialled(Primary())


def test_another_cluster_is_not_compared_by_its_timeline():
    """After a major upgrade, or a switch to a copy that was made by logical replication, timelines begin anew."""
    primary = Primary()
    primary.accept("a", on(9))
    assert primary.accept("a", on(1, system=8)) is True
    assert primary.has_left(on(9))


def test_a_server_that_does_not_tell_its_timeline_is_taken_as_it_is():
    primary = Primary()
    primary.accept("a", on(3))
    assert primary.accept("a", UNKNOWN_STANDING) is False
    assert primary.standing == on(3)
    assert not primary.has_left(UNKNOWN_STANDING)


def test_a_host_that_did_not_answer_is_no_longer_asked_first():
    primary = Primary()
    primary.accept("a", on(3))
    primary.doubt("b")
    assert primary.host == "a"
    primary.doubt("a")
    assert primary.host is None
