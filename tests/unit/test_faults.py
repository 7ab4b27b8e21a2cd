import inspect

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import State
from hawser.store import Actor, Enqueued, Filter, JobStore, Operator, Settled, Share, Store
from hawser.store.schedules import ScheduleStore
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore, ManualClock
from hawser.testing.contract.making import a_job, done, failed, said, take_one

SIGN = Actor()


@pytest.fixture
async def store():
    store = MemoryStore(clock=ManualClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def faulty(store):
    return FaultyStore(store)


async def outcomes(faulty: Store, calls: int) -> list[str]:
    answers = []
    for _ in range(calls):
        try:
            await faulty.stats()
        except (StoreUnavailable, OutcomeUnknown) as error:
            answers.append(type(error).__name__)
        else:
            answers.append("ok")
    return answers


async def test_a_store_without_faults_is_the_store_itself(store, faulty):
    job = a_job()
    assert await faulty.enqueue([job]) == [Enqueued(job.id, True)]
    [claimed] = await faulty.claim([Share("default")], 1, "w1", 60)
    assert said(await faulty.settle([done(claimed)])) == [Settled.SETTLED]
    assert await faulty.get(job.id) == await store.get(job.id)
    assert faulty.durability == store.durability
    assert not faulty.done


async def test_a_refused_call_is_not_made(store, faulty):
    faulty.next("enqueue", Fault.REFUSE)
    job = a_job()
    with pytest.raises(StoreUnavailable):
        await faulty.enqueue([job])
    assert await store.get(job.id) is None
    assert await faulty.enqueue([job]) == [Enqueued(job.id, True)]


async def test_a_lost_request_is_not_made(store, faulty):
    faulty.next("enqueue", Fault.LOSE_REQUEST)
    job = a_job()
    with pytest.raises(OutcomeUnknown):
        await faulty.enqueue([job])
    assert await store.get(job.id) is None
    assert await faulty.enqueue([job]) == [Enqueued(job.id, True)]


async def test_an_enqueue_repeated_after_a_lost_reply_makes_no_second_job(store, faulty):
    faulty.next("enqueue", Fault.LOSE_REPLY, times=2)
    job = a_job(key="k")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await faulty.enqueue([job])
    assert await faulty.enqueue([job]) == [Enqueued(job.id, False)]
    assert [found.id for found in (await store.find(Filter())).jobs] == [job.id]


async def test_a_settlement_repeated_after_a_lost_reply_says_so(store, faulty):
    await faulty.enqueue([a_job()])
    claimed = await take_one(faulty)
    faulty.next("settle", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknown):
        await faulty.settle([failed(claimed)])
    assert said(await faulty.settle([failed(claimed)])) == [Settled.REPEATED]
    job = await store.get(claimed.id)
    assert (job.state, len(job.attempts)) == (State.READY, 1)


async def test_a_claim_whose_reply_got_lost_holds_its_jobs(store, faulty):
    await faulty.enqueue([a_job()])
    faulty.next("claim", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknown):
        await take_one(faulty)
    assert (await store.stats()).running == 1


async def test_a_duplicated_call_is_made_twice_and_gives_the_last_answer(store, faulty):
    job = a_job()
    faulty.next("enqueue", Fault.DUPLICATE)
    assert await faulty.enqueue([job]) == [Enqueued(job.id, False)]
    claimed = await take_one(faulty)
    faulty.next("settle", Fault.DUPLICATE)
    assert said(await faulty.settle([done(claimed)])) == [Settled.REPEATED]
    assert (await store.get(job.id)).state is State.DONE


async def test_a_delayed_call_waits_and_is_made(store):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        assert (await store.stats()).ready == 0

    faulty = FaultyStore(store, delay=3, sleep=sleep)
    faulty.next("enqueue", Fault.DELAY)
    faulty.next("cancel", Fault.DELAY, delay=0.5)
    await faulty.enqueue([a_job()])
    assert slept == [3]
    assert (await store.stats()).ready == 1
    with pytest.raises(AssertionError):
        await faulty.cancel([], SIGN)
    assert slept == [3, 0.5]


async def test_a_script_is_played_in_order_and_counted(faulty):
    faulty.next("stats", Fault.REFUSE, times=2)
    faulty.next("stats", None)
    faulty.next("stats", Fault.LOSE_REPLY)
    faulty.next("queues", Fault.REFUSE)
    assert faulty.waiting == 5
    assert await outcomes(faulty, 5) == ["StoreUnavailable", "StoreUnavailable", "ok", "OutcomeUnknown", "ok"]
    assert faulty.waiting == 1
    assert faulty.done == {("stats", Fault.REFUSE): 2, ("stats", Fault.LOSE_REPLY): 1}
    assert faulty.calls == {"stats": 5}
    assert (faulty.count(Fault.REFUSE), faulty.count(Fault.DELAY)) == (2, 0)


async def test_a_seed_repeats_its_faults(store):
    chances = {Fault.REFUSE: 0.3, Fault.LOSE_REPLY: 0.2}
    runs = [await outcomes(FaultyStore(store, seed=seed, chances=chances), 200) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert 35 <= runs[0].count("StoreUnavailable") <= 85
    assert 20 <= runs[0].count("OutcomeUnknown") <= 60


async def test_a_method_may_have_chances_of_its_own(store):
    always = {Fault.REFUSE: 1.0}
    faulty = FaultyStore(store, chances=always, chances_of={"stats": {}})
    await faulty.open()
    assert await outcomes(faulty, 5) == ["ok"] * 5
    with pytest.raises(StoreUnavailable):
        await faulty.queues()
    faulty = FaultyStore(store, chances_of={"stats": always})
    assert await outcomes(faulty, 2) == ["StoreUnavailable"] * 2
    assert await faulty.queues() == {}


async def test_a_script_goes_before_chance(store):
    faulty = FaultyStore(store, chances={Fault.REFUSE: 1.0})
    faulty.next("stats", Fault.LOSE_REQUEST)
    faulty.next("stats", None)
    assert await outcomes(faulty, 3) == ["OutcomeUnknown", "ok", "StoreUnavailable"]


def test_wrong_settings_are_refused(store):
    with pytest.raises(ValueError, match="not a method of a store"):
        FaultyStore(store).next("ack", Fault.REFUSE)
    with pytest.raises(ValueError, match="not a method of a store"):
        FaultyStore(store, chances_of={"durability": {}})
    for chances in ({Fault.REFUSE: 0.7, Fault.DELAY: 0.7}, {Fault.REFUSE: -0.1}):
        with pytest.raises(ValueError, match="add up"):
            FaultyStore(store, chances=chances)


@pytest.mark.parametrize("protocol", [JobStore, ScheduleStore, Operator])
async def test_every_method_of_a_store_may_fail(store, protocol):
    faulty = FaultyStore(store)
    whole: Store = faulty
    names = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
    for name in names:
        method = getattr(whole, name)
        faulty.next(name, Fault.REFUSE)
        with pytest.raises(StoreUnavailable, match=f"^{name}:"):
            await method(*[None for p in inspect.signature(method).parameters.values() if p.default is p.empty])
