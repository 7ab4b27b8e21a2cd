"""The output of a job over HTTP: as a list, and as a stream that a reader can come back to."""

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from hawser import Hawser, State
from hawser.api import output
from hawser.api.call import Call, NoBody
from hawser.api.identity import LOCAL
from hawser.api.output import OutputReads
from hawser.api.server import Api
from hawser.outcome import Done
from hawser.store import Chunk, NewOutput, Settlement, Store
from tests.api.conftest import in_state

NOBODY = "018f0000-0000-7000-8000-000000000000"


def call_of(api: Api, store: Store, id: str, behind: bytes | None = None, start: int = 1) -> Call[NoBody, Any]:
    headers = [] if behind is None else [(b"last-event-id", behind)]
    return Call(
        api, store, LOCAL, {"id": id}, output.StreamQuery(**{"from": start}), NoBody(), {"headers": headers}, asyncio.Event()
    )


def told(event: bytes) -> tuple[str | None, str, dict[str, Any]]:
    """Id, name and data of an event."""
    lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return lines.get("id"), lines["event"], msgspec.json.decode(lines["data"])


async def written(store: Store, id: str, *chunks: bytes, first: int = 0) -> None:
    await store.write_output([NewOutput(id=id, lease=1, attempt=1, first=first, chunks=chunks)])


async def test_output_is_listed_and_paged(client: httpx.AsyncClient, app: Hawser, store: Store):
    id = await in_state(app, State.RUNNING)
    assert (await client.get(f"/jobs/{id}/output")).json() == {"chunks": []}
    await written(store, id, b'"one"', b'{"n":2}')
    one, two = (await client.get(f"/jobs/{id}/output")).json()["chunks"]
    assert (one["number"], one["value"], one["lease"], one["attempt"]) == (1, "one", 1, 1)
    assert (await client.get(f"/jobs/{id}/output?after=1")).json() == {"chunks": [two]}
    assert (await client.get(f"/jobs/{id}/output?after=-1")).status_code == 400
    assert (await client.get(f"/jobs/{id}/stream?from=x")).status_code == 400
    assert (await client.get(f"/jobs/{NOBODY}/output")).status_code == 404
    assert (await client.get(f"/jobs/{NOBODY}/stream")).status_code == 404


async def test_chunks_are_pushed_as_they_come_and_the_stream_ends_with_the_job(app: Hawser, store: Store, api: Api):
    api.output_reads = OutputReads(every=0.01)
    id = await in_state(app, State.RUNNING)
    stream = (await output.stream(call_of(api, store, id))).chunks
    assert await anext(stream) == b"retry: 3000\n\n"
    await written(store, id, b'"one"')
    number, name, data = told(await anext(stream))
    assert (number, name, data["value"], data["attempt"]) == ("1", "chunk", "one", 1)
    await written(store, id, b"2", b"3", first=1)
    await store.settle([Settlement(id, 1, Done(None))])
    assert [told(await anext(stream))[0] for _ in range(2)] == ["2", "3"], "what was written last comes before the end"
    assert told(await anext(stream)) == (None, "end", {"state": "done"})
    assert [event async for event in stream] == []
    assert api.pulse.listeners == 0


async def test_a_reader_that_comes_again_goes_on_where_it_was(app: Hawser, store: Store, api: Api):
    id = await in_state(app, State.RUNNING)
    await written(store, id, b"1", b"2", b"3")
    await store.settle([Settlement(id, 1, Done(None))])

    async def numbers(call: Call[NoBody, Any]) -> list[str | None]:
        return [told(event)[0] async for event in (await output.stream(call)).chunks if b"event: chunk" in event]

    assert await numbers(call_of(api, store, id)) == ["1", "2", "3"]
    assert await numbers(call_of(api, store, id, start=3)) == ["3"]
    assert await numbers(call_of(api, store, id, b"1")) == ["2", "3"]
    assert await numbers(call_of(api, store, id, b"2", start=1)) == ["3"], "where it was goes before where it began"
    assert await numbers(call_of(api, store, id, b"nonsense")) == ["1", "2", "3"]


async def test_the_stream_of_a_job_that_is_removed_ends(app: Hawser, store: Store, api: Api):
    id = await in_state(app, State.RUNNING)
    call = call_of(api, store, id)
    stream = (await output.stream(call)).chunks
    await anext(stream)
    await store.settle([Settlement(id, 1, Done(None), keep=False)])
    assert told(await anext(stream)) == (None, "end", {"state": None})


async def test_a_long_output_is_streamed_whole(app: Hawser, store: Store, api: Api):
    id = await in_state(app, State.RUNNING)
    await written(store, id, *(b"%d" % n for n in range(2_500)))
    await store.settle([Settlement(id, 1, Done(None))])
    events = [told(event) async for event in (await output.stream(call_of(api, store, id))).chunks if b"event" in event]
    assert [data["value"] for _, name, data in events if name == "chunk"] == list(range(2_500))


async def test_many_streams_of_one_job_share_each_read(app: Hawser, store: Store, api: Api, monkeypatch: pytest.MonkeyPatch):
    """A hundred readers at the same place cost one read; who goes on behind it reads on."""
    reads: list[int] = []
    read = store.output

    async def counting(id: str, after: int = 0) -> list[Chunk]:
        reads.append(after)
        return await read(id, after)

    monkeypatch.setattr(store, "output", counting)
    api.output_reads = OutputReads(every=60)
    id = await in_state(app, State.RUNNING)
    await written(store, id, b"1", b"2")
    streams = [(await output.stream(call_of(api, store, id, b"1"))).chunks for _ in range(100)]
    first = [await anext(stream) for stream in streams]
    said = await asyncio.gather(*(anext(stream) for stream in streams))
    assert set(first) == {b"retry: 3000\n\n"}
    assert {told(event)[0] for event in said} == {"2"}
    assert reads == [1]
    other = (await output.stream(call_of(api, store, id))).chunks
    await anext(other)
    assert told(await anext(other))[0] == "1", "from where it wants to begin, not from where others are"
    assert reads == [1, 0]
    for stream in (*streams, other):
        await stream.aclose()
    assert api.pulse.listeners == 0


async def test_what_was_read_for_streams_is_forgotten(app: Hawser, store: Store):
    """Also when no stream is left: an output may be long."""
    reads = OutputReads(every=0.01)
    id = await in_state(app, State.RUNNING)
    assert (await reads.get(store, id, 0)).chunks == []
    await written(store, id, b"1")
    async with asyncio.timeout(10):
        while not (await reads.get(store, id, 0)).chunks:
            await asyncio.sleep(0.002)
        while reads._reads:
            await asyncio.sleep(0.002)
