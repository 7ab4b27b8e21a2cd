"""The journal of the memory store: what is on the disk when, and what a damaged disk is told from."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob, State, new_job
from hawser.outcome import Done
from hawser.store import Filter, Settlement, Share
from hawser.stores import make_store
from hawser.stores.memory.journal import JournaledStore
from hawser.stores.memory.journal.call import LoggedCall, decode_calls, encode
from hawser.stores.memory.journal.frame import framed, frames
from tests.model.stores import killed


def job(n: int = 1) -> NewJob:
    return new_job(task="mail", body=b'{"n":%d}' % n)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[JournaledStore]:
    store = JournaledStore(folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def written(folder: Path, count: int) -> list[str]:
    """Enqueue one by one, each with a sync of its own, and end as a killed process does."""
    store = JournaledStore(folder)
    await store.open()
    ids = []
    for n in range(count):
        [answer] = await store.enqueue([job(n)])
        ids.append(answer.id)
    killed(store)
    return ids


async def ids_in(folder: Path) -> list[str]:
    store = JournaledStore(folder)
    await store.open()
    page = await store.find(Filter(), limit=1000)
    killed(store)
    return sorted(found.id for found in page.jobs)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that syncs nothing until the event is set."""
    goes_on = threading.Event()
    sync = os.fdatasync

    def wait_first(file: int) -> None:
        goes_on.wait(20)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", wait_first)
    yield goes_on
    goes_on.set()


async def test_no_call_is_answered_before_the_disk_has_it(folder: Path, slow_disk: threading.Event):
    async with opened(folder) as store:
        enqueue = asyncio.ensure_future(store.enqueue([job()]))
        reading = asyncio.ensure_future(store.stats())
        done, _ = await asyncio.wait((enqueue, reading), timeout=0.3)
        assert not done, "answered, or shown to a reader, while a crash could take it back"
        slow_disk.set()
        async with asyncio.timeout(10):
            await enqueue
            assert (await reading).ready == 1


async def test_calls_that_arrive_during_a_sync_share_the_next_one(folder: Path, slow_disk: threading.Event):
    async with opened(folder) as store:
        calls = [asyncio.ensure_future(store.enqueue([job(n)])) for n in range(100)]
        await asyncio.sleep(0)
        slow_disk.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*calls)
        killed(store)
    [path] = folder.glob("log-*")
    assert sum(1 for _ in frames(path, 1, last_log=True)) <= 3


async def test_everything_is_there_after_a_kill_and_goes_on_where_it_was(folder: Path):
    store = JournaledStore(folder)
    await store.open()
    [first, second] = await store.enqueue([job(1), job(2)])
    [run] = await store.claim([Share("default")], 1, "w1", 60)
    assert run.id == first.id
    killed(store)
    async with opened(folder) as again:
        assert [answer.state for answer in await again.settle([Settlement(run.id, run.lease, Done())])] == [State.DONE]
        [other] = await again.claim([Share("default")], 5, "w2", 60)
        assert other.id == second.id


async def test_a_write_that_a_crash_cut_off_is_left_out_at_every_byte(folder: Path, tmp_path: Path):
    ids = await written(folder, 3)
    [path] = folder.glob("log-*")
    whole = path.read_bytes()
    kept = [frame.end for frame in frames(path, 1, last_log=True)]
    assert len(kept) == 3
    for size in range(kept[1], len(whole)):
        copy = tmp_path / f"copy-{size}"
        copy.mkdir()
        (copy / path.name).write_bytes(whole[:size])
        assert await ids_in(copy) == sorted(ids[:2]), f"cut to {size} bytes"
        assert (copy / path.name).stat().st_size == kept[1], "the end is cut, so that the next log follows a whole one"


async def test_zeros_ahead_of_the_end_are_no_damage(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ids = await written(folder, 3)
    [path] = folder.glob("log-*")
    whole = path.read_bytes()
    kept = [frame.end for frame in frames(path, 1, last_log=True)]
    for size in (*range(kept[1], len(whole), 7), len(whole)):
        copy = tmp_path / f"copy-{size}"
        copy.mkdir()
        (copy / path.name).write_bytes(whole[:size] + bytes(5000))
        caplog.clear()
        assert await ids_in(copy) == sorted(ids if size == len(whole) else ids[:2]), f"written up to {size} bytes"
        assert ("cut off by a crash" in caplog.text) == (size not in (kept[1], len(whole)))


async def test_only_the_log_that_is_written_has_zeros_ahead(folder: Path):
    store = JournaledStore(folder)
    await store.open()
    await store.enqueue([job(1)])
    first = folder / "log-000000000001"
    [frame] = frames(first, 1, last_log=True)
    assert first.stat().st_size > frame.end
    assert store._log is not None
    store._log.rotate()
    assert first.stat().st_size == frame.end
    await store.close()


async def test_a_damaged_byte_before_the_last_write_is_refused_with_its_place(folder: Path, tmp_path: Path):
    await written(folder, 3)
    [path] = folder.glob("log-*")
    whole = path.read_bytes()
    last = [frame.end for frame in frames(path, 1, last_log=True)][1]
    for offset in range(last):
        copy = tmp_path / f"copy-{offset}"
        copy.mkdir()
        (copy / path.name).write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x40]) + whole[offset + 1 :])
        with pytest.raises(StoreUnavailable, match=r"is damaged at byte \d+, .*restore the folder from a copy"):
            await ids_in(copy)


async def test_a_log_that_is_missing_is_named(folder: Path):
    for _ in range(3):
        await written(folder, 1)
    sorted(folder.glob("log-*"))[1].unlink()
    with pytest.raises(StoreUnavailable, match="has lost the file log-000000000002"):
        await ids_in(folder)


@pytest.mark.parametrize("call", ["fdatasync", "write"])
async def test_after_the_first_error_of_the_disk_nothing_is_answered(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str):
    ids = await written(folder, 2)
    store = JournaledStore(folder)
    await store.open()

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(OutcomeUnknown, match="could not be written: Input/output error; mend the disk and restart"):
            await store.enqueue([job()])
    # The disk works again, and what it has is not known: a second sync could say that all is well when it is not.
    for refused in (store.enqueue([job()]), store.stats(), store.claim([Share("default")], 1, "w1", 60)):
        with pytest.raises(StoreUnavailable, match="could not be written"):
            await refused
    await store.close()
    assert set(ids) <= set(await ids_in(folder))


async def test_a_journal_has_one_owner(folder: Path):
    async with opened(folder):
        with pytest.raises(StoreUnavailable, match="is open in this process already"):
            await JournaledStore(folder).open()
        script = "import asyncio, sys; from hawser.stores import make_store; asyncio.run(make_store(sys.argv[1]).open())"
        other = subprocess.run(
            [sys.executable, "-c", script, f"memory://?journal={folder}"], capture_output=True, text=True, timeout=60, check=False
        )
        assert "is open in another process already; close it there, or name another folder" in other.stderr
    async with opened(folder):
        pass


async def test_a_forked_child_neither_writes_the_journal_nor_keeps_it(folder: Path):
    store = JournaledStore(folder)
    await store.open()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(store.enqueue([job()]))
        except StoreUnavailable as error:
            os._exit(7 if "opened before this process was forked" in str(error) else 1)
        except BaseException:
            os._exit(2)
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    await store.close()


async def test_an_image_stands_for_the_logs_before_it(folder: Path):
    store = JournaledStore(folder, compact_at=20_000)
    await store.open()
    ids = []
    for n in range(200):
        ids += [answer.id for answer in await store.enqueue([job(n), job(n)])]
        if n % 2:
            [run] = await store.claim([Share("default")], 1, "w1", 60)
            await store.settle([Settlement(run.id, run.lease, Done(b"1"))])
    assert store._compacting is not None
    store._compacting.join(60)
    wanted = {found.id: found for found in (await store.find(Filter(), limit=1000)).jobs}
    killed(store)
    assert list(folder.glob("image-*"))
    assert not (folder / "log-000000000001").exists()
    async with opened(folder) as again:
        assert {found.id: found for found in (await again.find(Filter(), limit=1000)).jobs} == wanted
        assert (await again.stats()).done == 100


async def test_a_clean_end_leaves_an_image_and_no_log_to_make_again(folder: Path):
    async with opened(folder) as store:
        await store.enqueue([job()])
    assert [path.name for path in sorted(folder.iterdir())] == ["image-000000000001", "lock"]
    assert len(await ids_in(folder)) == 1


async def test_a_call_that_this_version_answers_differently_is_refused(folder: Path):
    await written(folder, 1)
    [path] = folder.glob("log-*")
    [frame] = frames(path, 1, last_log=True)
    [call] = decode_calls(frame.body)
    path.write_bytes(framed(1, encode([LoggedCall(call.now, call.latest, call.method, call.arguments, zlib.crc32(b"other"))])))
    with pytest.raises(StoreUnavailable, match="a call of enqueue that this version answers in another way; open it with the"):
        await ids_in(folder)
    path.write_bytes(framed(1, encode([LoggedCall(call.now, call.latest, "teleport", call.arguments, call.digest)])))
    with pytest.raises(StoreUnavailable, match="a call of teleport that this version does not know"):
        await ids_in(folder)


async def test_only_the_owner_of_the_files_may_read_them(folder: Path):
    async with opened(folder) as store:
        await store.enqueue([job()])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://?journal=", "journal= names no folder"),
        ("memory://?journl=a", "unknown setting 'journl' in the URL; memory:// takes journal=FOLDER"),
        ("memory://host?journal=a", r"takes nothing behind it but \?journal=FOLDER"),
    ],
)
def test_a_wrong_url_is_explained(url: str, said: str):
    with pytest.raises(ConfigError, match=said):
        make_store(url)


async def test_a_journal_where_a_file_stands_is_refused(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreUnavailable, match=r"cannot be used: .*; name a folder that this process may write"):
        await make_store(f"memory://?journal={tmp_path / 'taken'}").open()
