"""Keeping: how long jobs are kept unless the app says otherwise, and what may have been lost."""

from hawser.store import Store


async def test_a_store_whose_server_was_never_replaced_says_so(store: Store) -> None:
    """
    How often a replica was seen to take the place of the server, so that what this had accepted last may be lost.
    """
    assert await store.failovers() == 0


async def test_a_store_says_how_long_it_keeps_what_is_over(store: Store) -> None:
    kept = store.retention
    assert kept.done > 0
    assert kept.dead >= kept.cancelled >= kept.done
    assert store.done_most is None or store.done_most > 0
