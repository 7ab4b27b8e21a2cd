"""Hooks of schemathesis: what the server judges more strictly than the document says, and numbers as the document means them.

The document is plain, so that programs can write clients from it. The rules between its fields stand here, for the generator of
requests.
"""

from __future__ import annotations

from typing import Any

import schemathesis

MOST = 2**63 - 1
"""To JSON Schema 5.0 is an integer, and one may have a thousand digits. Here an integer has no point and no more than 64 bits."""

DRY_OR_TOKEN = [
    {"required": ["dry_run"], "properties": {"dry_run": {"const": True}}},
    {"required": ["token"], "properties": {"token": {"type": "string"}}},
]
"""A bulk action is a dry run, or has the token of one."""


def plain(value: Any) -> Any:
    match value:
        case bool():
            return value
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case int():
            return max(-MOST, min(MOST, value))
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
    return value


NOTHING: tuple[Any, ...] = (None, [], {}, [""], [None])
"""What is sent as `name=`. That means the same as leaving the parameter out, so it is no mistake."""


@schemathesis.hook
def filter_query(context: Any, query: Any) -> bool:
    return query is None or all(value not in NOTHING for value in query.values())


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    return plain(body)


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    schemas = raw_schema["components"]["schemas"]
    for name, words in (("JobIn", ("task", "type")), ("ScheduleIn", ("task",))):
        schema = schemas[name]
        tasks = schema.pop("x-payloads").items()
        schema["oneOf"] = [_with(word, task, **said) for task, said in tasks for word in words]
    job = schemas["JobIn"]
    job["required"] = []
    job["not"] = {"anyOf": [{"required": ["delay", "run_at"]}, {"required": ["task", "type"]}]}
    job["dependentRequired"] = {"key_ttl": ["key"]}
    schemas["BulkIn"]["anyOf"] = DRY_OR_TOKEN
    change = schemas["ChangeIn"]
    change["anyOf"] = [{"required": [name]} for name in ("queue", "priority", "run_at", "delay")]
    change["not"] = {"required": ["delay", "run_at"]}
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter.pop("allowEmptyValue", False):
                    parameter["schema"] = {"anyOf": [parameter["schema"], {"const": ""}]}


def _with(word: str, task: str, payload: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"required": [word, *required], "properties": {word: {"const": task}, "payload": payload}}
