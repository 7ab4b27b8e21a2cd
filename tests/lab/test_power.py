"""A disk whose power is cut: what was answered before is there, and nothing that is answered later counts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hawser.errors import ConfigError
from hawser.lab.chaos.power import PowerCut
from hawser.lab.generator import MIXED, LoadPlan
from hawser.lab.journal import Journal, What, read
from hawser.lab.producer import LoadProducer
from hawser.stores import make_store
from tests.repetition import times

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")

BLOCK = 4096
WRITERS = 3
CUTS = times(10, 200)

WRITER = """
import os, sys

file, said = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
while True:
    os.write(file, b"x" * 4096)
    os.fdatasync(file)
    os.write(said, b".")
"""
"""Lets a file grow by a block, syncs it, and says so."""


def test_a_user_who_may_not_mount_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(ConfigError, match="run this experiment as root"), PowerCut():
        pass


@needs_root
def test_after_a_cut_each_answered_sync_is_on_the_disk_and_nothing_else_is_believed(tmp_path):
    """Writers that are killed after the cut fail this: the kernel answers some syncs that it has given up."""
    dice = random.Random(1)
    files = [f"file{number}" for number in range(WRITERS)]
    with PowerCut() as disk:
        for _ in range(CUTS):
            for name in files:
                (tmp_path / name).write_bytes(b"")
            writers = [
                subprocess.Popen([sys.executable, "-c", WRITER, disk.folder / name, tmp_path / name], stderr=subprocess.DEVNULL)
                for name in files
            ]
            _until_all_have_said_something([tmp_path / name for name in files])
            time.sleep(dice.uniform(0, 0.05))  # the cut comes at any moment of a write
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
            disk.cut()
            for writer in writers:
                writer.wait(30)
            disk.restore()
            for name in files:
                answered = (tmp_path / name).stat().st_size
                assert answered
                assert (disk.folder / name).read_bytes()[: answered * BLOCK] == b"x" * answered * BLOCK


@needs_root
def test_what_was_not_synced_is_gone_after_a_cut():
    with PowerCut() as disk:
        (disk.folder / "synced").write_bytes(b"x")
        os.sync()
        (disk.folder / "not").write_bytes(b"x")
        disk.cut()
        with pytest.raises(OSError, match="Input/output"):
            (disk.folder / "later").write_bytes(b"x")
        disk.restore()
        assert [each.name for each in disk.folder.iterdir() if each.is_file()] == ["synced"]


async def test_a_producer_whose_store_lost_its_power_writes_every_answer_down_as_unknown(tmp_path):
    store = make_store("memory://")
    await store.open()
    journal = Journal(tmp_path / "journal")
    load = LoadPlan(1, MIXED)
    producer = LoadProducer(store, journal, load, rate=100, seed=1)
    await producer.send(load.take(1))
    producer.believe_nothing()
    producer._stop = True
    await producer.send(load.take(1))
    assert [record.what for record in read(tmp_path / "journal")] == [
        What.ENQUEUE,
        What.ACCEPTED,
        What.ENQUEUE,
        What.UNKNOWN,
    ]
    await store.close()


def _until_all_have_said_something(files: list[Path]) -> None:
    end = time.monotonic() + 30
    while not all(file.stat().st_size for file in files):
        assert time.monotonic() < end
        time.sleep(0.001)
