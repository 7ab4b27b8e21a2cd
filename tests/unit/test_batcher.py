"""What arrives while a write is under way goes into the next; a refused batch is written item by item."""

from collections.abc import Callable

import pytest

from hawser.batcher import Batcher


class Refused(Exception):
    """Not to be written as it is."""


def written(batcher: Batcher[str], write: Callable[[list[str]], None]) -> list[str]:
    """What a writer does that takes until there is nothing left; the items that were refused."""
    refused = []
    while batch := batcher.take():
        try:
            write(batch)
        except Refused:
            if not batcher.split(batch):
                refused += batch
    return refused


def test_what_arrives_while_a_write_is_under_way_goes_into_the_next():
    batcher: Batcher[str] = Batcher(10)
    batches = []

    def write(batch: list[str]) -> None:
        batches.append(batch)
        if len(batches) == 1:
            batcher.add("b")
            batcher.add("c")

    batcher.add("a")
    assert written(batcher, write) == []
    assert batches == [["a"], ["b", "c"]]


def test_a_batch_has_no_more_items_than_it_may():
    batcher: Batcher[str] = Batcher(2)
    for item in "abcde":
        batcher.add(item)
    assert [batcher.take() for _ in range(4)] == [["a", "b"], ["c", "d"], ["e"], []]


def test_a_batch_is_no_larger_than_it_may_be_and_has_one_item_at_least():
    batcher: Batcher[str] = Batcher(4, size=len)
    for item in ("aa", "bb", "c", "too large", "d"):
        batcher.add(item)
    assert [batcher.take() for _ in range(5)] == [["aa", "bb"], ["c"], ["too large"], ["d"], []]


def test_a_refused_batch_is_written_item_by_item_and_only_the_wrong_one_hears_of_it():
    batcher: Batcher[str] = Batcher(10)
    done: list[str] = []

    def write(batch: list[str]) -> None:
        if "wrong" in batch:
            raise Refused
        done.extend(batch)

    for item in ("a", "wrong", "b"):
        batcher.add(item)
    assert written(batcher, write) == ["wrong"]
    assert done == ["a", "b"]


def test_what_arrives_while_a_refused_batch_is_written_waits_for_all_of_it():
    batcher: Batcher[str] = Batcher(10)
    for item in "ab":
        batcher.add(item)
    assert batcher.split(batcher.take())
    batcher.add("later")
    batcher.add("with it")
    assert [batcher.take() for _ in range(3)] == [["a"], ["b"], ["later", "with it"]]


def test_what_could_not_be_written_now_is_the_next_again():
    batcher: Batcher[str] = Batcher(2)
    for item in "abc":
        batcher.add(item)
    batcher.put_back(batcher.take())
    assert [batcher.take() for _ in range(2)] == [["a", "b"], ["c"]]


def test_an_item_of_a_refused_batch_that_is_put_back_stays_alone():
    batcher: Batcher[str] = Batcher(10)
    for item in "ab":
        batcher.add(item)
    batcher.split(batcher.take())
    batcher.put_back(batcher.take())
    batcher.add("c")
    assert [batcher.take() for _ in range(3)] == [["a"], ["b"], ["c"]]


def test_after_the_close_nothing_is_taken_and_what_waits_is_still_written():
    batcher: Batcher[str] = Batcher(10)
    batcher.add("a")
    batcher.close(Refused("closed"))
    with pytest.raises(Refused, match="closed"):
        batcher.add("b")
    assert len(batcher) == 1
    assert batcher.take() == ["a"]


def test_all_that_waits_can_be_told_that_it_is_not_written():
    batcher: Batcher[str] = Batcher(10)
    for item in "abc":
        batcher.add(item)
    batcher.split(batcher.take())
    batcher.add("d")
    assert list(batcher) == ["a", "b", "c", "d"]
    assert batcher.clear() == ["a", "b", "c", "d"]
    assert (len(batcher), batcher.take()) == (0, [])
