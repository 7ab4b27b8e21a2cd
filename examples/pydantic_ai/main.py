"""An agent of Pydantic AI as a job: every answer of the model is a step, so that no later run pays for it again.

Without a key it asks a model that is a function: `python main.py`. With one, set AGENT_MODEL to a model such as `openai:gpt-5`.
"""

import os
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from hawser import Context, Fixed, Hawser

jobs = Hawser(os.environ.get("SHOP_JOBS", "sqlite:///jobs.db"))
answers = TypeAdapter(ModelResponse)
asked: list[int] = []
"""How many messages the model saw, for each time that it was asked."""


class RecordedModel(WrapperModel):
    """A model whose answers are steps of a job, by their number."""

    def __init__(self, wrapped: Model | str, ctx: Context) -> None:
        super().__init__(wrapped)  # type: ignore[arg-type]  # any name of a model
        self._ctx = ctx
        self._turn = 0

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        self._turn += 1

        async def ask() -> Any:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            return answers.dump_python(response, mode="json")

        return answers.validate_python(await self._ctx.step(f"turn {self._turn}", ask))


agent = Agent(deps_type=Context, instructions="You look after orders.")


@agent.tool
async def refund(run: RunContext[Context], order: int) -> str:
    """Give the money for an order back."""

    async def pay() -> str:
        return f"order {order} refunded, with the key {run.deps.key('refund')[-6:]}"

    # A tool that has an effect is a step, too.
    return await run.deps.step(f"refund {order}", pay)


@jobs.task(max_attempts=3, timeout=600, backoff=Fixed(every=0.1))
async def look_after(ctx: Context, question: str) -> str:
    model = RecordedModel(os.environ.get("AGENT_MODEL") or FunctionModel(a_model), ctx)
    result = await agent.run(question, model=model, deps=ctx)
    ctx.write(result.output)
    if ctx.attempt == 1 and "crash" in question:
        raise OSError("the worker is gone, after all turns were paid for")
    return result.output


def a_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Three refunds, one by one, then an answer."""
    asked.append(len(messages))
    if len(asked) <= 3:
        return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {"order": len(asked)})])
    return ModelResponse(parts=[TextPart("three orders are refunded")])


async def main() -> None:
    """Enqueue one, run it here, show what was kept."""
    async with jobs, jobs.worker(slots=2):
        handle = await look_after.aenqueue("Please refund the orders 1, 2 and 3, and crash once.")
        print(await handle.wait(timeout=60))
    for step in jobs.steps(handle.id):
        print(step.name)


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
