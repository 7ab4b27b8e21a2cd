"""`/dlq/groups`: dead letters by task and kind of error, so that five thousand of one cause are one line."""

from __future__ import annotations

from hawser.api.bodies import GroupsQuery, or_none
from hawser.api.call import Answer, Call, NoBody
from hawser.api.views import GroupsOut, GroupView
from hawser.store import AuditRecord, DeadGroup
from hawser.value.fingerprint import NO_ERROR_TOLD, Group, pattern


async def groups(call: Call[NoBody, GroupsQuery]) -> Answer:
    """Dead jobs grouped by task and error, the largest group first."""
    found = await call.store.dead_groups(or_none(call.query.queue), or_none(call.query.task), call.query.limit)
    deploy = await call.api.marks.newest_deploy(call.store)
    views = [group_view(group, deploy) for group in found.groups]
    return Answer(
        GroupsOut(
            groups=views,
            grouped=sum(view.count for view in views),
            ungrouped=found.ungrouped,
            complete=not found.ungrouped and not found.more,
        )
    )


def group_view(group: DeadGroup, deploy: AuditRecord | None) -> GroupView:
    error = group.sample.error or NO_ERROR_TOLD
    return GroupView(
        id=Group(group.task, group.fingerprint).id,
        task=group.task,
        fingerprint=pattern(error),
        count=group.count,
        first_at=group.first_at,
        last_at=group.sample.finished_at,
        sample_id=group.sample.id,
        sample_error=error,
        new_since=None if deploy is None or group.first_at < deploy.at else deploy.target.removeprefix("version:"),
    )
