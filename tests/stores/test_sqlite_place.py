"""The file, or its log, removed or replaced while a process has it open."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from hawser.errors import StoreUnavailable
from hawser.job import NewJob
from hawser.store import Share
from hawser.stores.sqlite import SqliteStore, place

GONE = r"was removed or replaced while this process had it open.*; nothing was written: put the same file back, or restart"


def a_job() -> NewJob:
    return NewJob(task="work", body=b"{}")


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(place, "FILE_LOOK_EVERY_S", 0.0)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.enqueue([a_job()])
    yield store
    await store.close()


@pytest.mark.parametrize("name", ["jobs.db", "jobs.db-wal"])
@pytest.mark.parametrize("fault", ["removed", "replaced"])
async def test_nothing_is_accepted_into_a_file_that_no_other_process_would_find(
    store: SqliteStore, tmp_path: Path, name: str, fault: str
):
    path = tmp_path / name
    if fault == "replaced":
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    else:
        path.unlink()
    for call in (store.enqueue([a_job()]), store.claim([Share("default")], 1, "w", 30), store.stats(), store.beat([])):
        with pytest.raises(StoreUnavailable, match=GONE) as raised:
            await call
        assert repr(str(path)) in str(raised.value)


async def test_it_is_noticed_within_a_moment_however_much_is_written(tmp_path: Path):
    store = SqliteStore(tmp_path / "jobs.db")
    await store.enqueue([a_job()])
    (tmp_path / "jobs.db").unlink()
    began = time.monotonic()
    accepted = 0
    with suppress(StoreUnavailable):
        while time.monotonic() < began + 5:
            await store.enqueue([a_job()])
            accepted += 1
    assert time.monotonic() < began + 3, f"{accepted} were accepted"
    await store.close()


async def test_it_goes_on_when_the_same_file_is_back(store: SqliteStore, tmp_path: Path):
    path, aside = tmp_path / "jobs.db", tmp_path / "aside.db"
    path.rename(aside)
    with pytest.raises(StoreUnavailable, match=GONE):
        await store.enqueue([a_job()])
    aside.rename(path)
    await store.enqueue([a_job()])
    assert (await store.stats()).ready == 2


async def test_a_store_that_is_opened_again_uses_what_is_there(store: SqliteStore, tmp_path: Path):
    for path in tmp_path.glob("jobs.db*"):
        path.unlink()
    with pytest.raises(StoreUnavailable, match=GONE):
        await store.enqueue([a_job()])
    await store.close()
    await store.open()
    await store.enqueue([a_job()])
    assert (await SqliteStore(tmp_path / "jobs.db").stats()).ready == 1


def test_a_relative_path_means_the_same_file_after_the_working_directory_changed(tmp_path: Path):
    script = """
import asyncio, os, sys
from hawser.job import NewJob
from hawser.stores.sqlite import SqliteStore, place
async def main():
    store = SqliteStore("jobs.db")
    await store.open()
    os.chdir("/")
    await store.enqueue([NewJob(task="work", body=b"{}")])
    print((await store.stats()).ready)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1\n", done.stderr


async def test_a_link_to_the_file_is_as_good_as_the_file(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "disk" / "jobs.db")
    linked, direct = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "disk" / "jobs.db")
    await linked.enqueue([a_job()])
    await asyncio.gather(*(store.enqueue([a_job()]) for store in (linked, direct) * 5))
    assert (await direct.stats()).ready == 11
    assert sorted(os.listdir(tmp_path / "disk")) == ["jobs.db", "jobs.db-lock", "jobs.db-shm", "jobs.db-wal"]
    await linked.close()
    await direct.close()
