"""What one script of the Redis store is given at most: it holds up all others for as long as it runs."""

from __future__ import annotations

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import State
from hawser.outcome import Failed, Failure
from hawser.store import Actor, Settled, Settlement, Share
from hawser.stores import make_store
from hawser.stores.redis import runs as runs_module
from hawser.testing.contract.making import a_job, done
from tests.redis_servers import LANES, RunningServer

ALL = [Share("default")]


@pytest.fixture(scope="module")
def server():
    running = RunningServer("valkey").start()
    yield running
    running.stop()


@pytest.fixture(params=LANES)
async def store(server, request):
    with server.client() as client:
        client.flushall()
    opened = make_store(f"{server.url}?lanes={request.param}")
    await opened.open()
    yield opened
    await opened.close()


async def runs_of(store, count: int):
    await store.enqueue([a_job(max_attempts=1) for _ in range(count)])
    return await store.claim(ALL, count, "w1", 60)


def failed(run) -> Settlement:
    return Settlement(run.id, run.lease, Failed(Failure("E: x")))


class Scripts:
    """Counts the scripts that a store has run, and refuses those from a number on."""

    def __init__(self, store, monkeypatch, refused_from: int = 1_000_000) -> None:
        self.names: list[str] = []
        run = store.server.run

        async def counted(name, *arguments, **options):
            self.names.append(name)
            if len(self.names) >= refused_from:
                raise StoreUnavailable("the server is busy; nothing was written: try again")
            return await run(name, *arguments, **options)

        monkeypatch.setattr(store.server, "run", counted)


async def test_settlements_that_cost_much_go_in_several_scripts_and_each_is_answered(store, monkeypatch):
    monkeypatch.setattr(runs_module, "EFFORT_PER_SCRIPT", 7)
    runs = await runs_of(store, 12)
    scripts = Scripts(store, monkeypatch)
    given = [done(run) if number % 3 else failed(run) for number, run in enumerate(runs)]
    answers = await store.settle(given)
    assert [(answer.said, answer.state) for answer in answers] == [
        (Settled.SETTLED, State.DONE if number % 3 else State.DEAD) for number in range(12)
    ]
    assert scripts.names.count("settle") == 4
    assert {answer.said for answer in await store.settle(given)} == {Settled.REPEATED}


async def test_plain_settlements_are_one_script(store, monkeypatch):
    runs = await runs_of(store, 500)
    scripts = Scripts(store, monkeypatch)
    await store.settle([done(run) for run in runs])
    assert scripts.names == ["settle"]


@pytest.mark.parametrize("more", [{"key": "k"}, {"group": "g"}, {"index": ("user=1",)}], ids=["key", "group", "index"])
async def test_settlements_of_jobs_that_have_more_to_them_go_in_several_scripts(store, monkeypatch, more):
    """What their jobs cost is known to the server alone, so the script leaves some to the next."""
    await store.enqueue([a_job(**{**more, **({"key": f"k{n}"} if "key" in more else {})}) for n in range(700)])
    await store.enqueue([a_job() for _ in range(10)])
    runs = await store.claim(ALL, 1_000, "w1", 60)
    scripts = Scripts(store, monkeypatch)
    given = [done(run) for run in runs]
    answers = await store.settle(given)
    assert [(answer.said, answer.state) for answer in answers] == [(Settled.SETTLED, State.DONE)] * 710
    assert scripts.names == ["settle"] * 3
    assert {answer.said for answer in await store.settle(given)} == {Settled.REPEATED}


async def test_when_a_later_script_is_refused_the_outcome_is_unknown(store, monkeypatch):
    monkeypatch.setattr(runs_module, "EFFORT_PER_SCRIPT", 7)
    runs = await runs_of(store, 4)
    with monkeypatch.context() as patched:
        Scripts(store, patched, refused_from=2)
        with pytest.raises(OutcomeUnknown, match="repeat all"):
            await store.settle([failed(run) for run in runs])
    answers = await store.settle([failed(run) for run in runs])
    assert [answer.said for answer in answers] == [Settled.REPEATED] * 2 + [Settled.SETTLED] * 2


async def test_a_call_of_which_nothing_was_written_says_so(store, monkeypatch):
    runs = await runs_of(store, 4)
    Scripts(store, monkeypatch, refused_from=1)
    with pytest.raises(StoreUnavailable):
        await store.settle([failed(run) for run in runs])


async def test_a_claim_passes_many_cancelled_jobs_in_several_scripts(store, monkeypatch):
    """To pass over one costs as much as to claim one."""
    enqueued = [each for _ in range(5) for each in await store.enqueue([a_job() for _ in range(1_000)])]
    [last] = await store.enqueue([a_job()])
    await store.cancel([each.id for each in enqueued], Actor("test"))
    scripts = Scripts(store, monkeypatch)
    assert [run.id for run in await store.claim(ALL, 1_000, "w1", 60)] == [last.id]
    assert scripts.names.count("claim") >= 4
    assert len(set(scripts.names)) == 1
