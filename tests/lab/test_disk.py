"""A disk that is full: what a store says, and that what it accepted is still there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hawser.errors import ConfigError, StoreFull
from hawser.job import NewJob
from hawser.lab.chaos.disk import SmallDisk, fill_for
from hawser.lab.chaos.plan import Plan
from hawser.stores import make_store

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


def test_somebody_who_may_not_mount_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(ConfigError, match="run this experiment as root"), SmallDisk():
        pass


@needs_root
def test_a_disk_is_filled_to_the_last_byte_freed_and_gone():
    with SmallDisk(2**20) as disk:
        disk.fill()
        assert disk.left == 0
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(b"x" * 8_192)
        disk.free()
        assert disk.left > 2**19
        assert Plan({"full": (1, fill_for(disk, 0.01))}, seed=1, every=(0, 0)).run(times=1) == {"full": 1}
        assert disk.left > 2**19
    assert not disk.folder.exists()
    assert str(disk.folder) not in Path("/proc/mounts").read_text()


@needs_root
async def test_a_store_on_a_full_disk_refuses_and_goes_on_when_there_is_room():
    with SmallDisk(2**21) as disk:
        store = make_store(f"sqlite:///{disk.folder}/jobs.db")
        await store.open()
        accepted = []
        disk.fill()

        async def enqueue_for_ever() -> None:
            while True:
                job = NewJob(task="work", body=b'{"filler": "%s"}' % (b"x" * 500))
                await store.enqueue([job])
                accepted.append(job.id)

        with pytest.raises(StoreFull):
            await enqueue_for_ever()
        disk.free()
        more = NewJob(task="work", body=b"{}")
        await store.enqueue([more])
        for id in (*accepted, more.id):
            assert await store.get(id) is not None
        await store.close()
