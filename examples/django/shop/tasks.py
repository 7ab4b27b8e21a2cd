"""The tasks of the shop, written for django.tasks: nothing here knows Hawser."""

try:
    from django.tasks import TaskContext, task
except ImportError:  # before Django 6
    from django_tasks import TaskContext, task


@task(queue_name="mail", priority=10)
async def send_receipt(order: int, *, to: str) -> str:
    return f"receipt of order {order} to {to}"


@task(takes_context=True)
def pack(context: TaskContext, order: int) -> dict[str, int]:
    return {"order": order, "attempt": context.attempt}


@task
def charge(order: int) -> None:
    raise ValueError(f"order {order} has no price")
