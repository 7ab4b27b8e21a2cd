"""The agent under examples/pydantic_ai: its model is asked once for each turn, though the job runs again."""

from pathlib import Path

from tests.examples.test_web import EXAMPLES, run

ASK = """
import asyncio
import main

async def play() -> None:
    await main.main()
    assert main.asked == [1, 3, 5, 7], main.asked

asyncio.run(play())
[job] = main.jobs.find(task="look_after").jobs
assert (job.state, len(job.attempts), job.attempts[0].outcome) == ("done", 2, "failed"), job
assert [chunk.lease for chunk in main.jobs.output(job.id)] == [1, 2], "what stands between steps runs again"
"""


def test_no_turn_of_an_agent_is_paid_for_twice(tmp_path: Path):
    said = run(EXAMPLES / "pydantic_ai", tmp_path, "-c", ASK)
    assert said.splitlines() == [
        "three orders are refunded",
        "turn 1",
        "refund 1",
        "turn 2",
        "refund 2",
        "turn 3",
        "refund 3",
        "turn 4",
    ]
