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

INDEXED = "^template="
"""Jobs are found by the arguments that a task of the app declares as indexed."""


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
    apart = [["delay", "run_at"], ["task", "type"], ["delay", "expires"], ["at_most"]]  # at_most is not below debounce
    apart += [["debounce", other] for other in ("delay", "run_at", "expires", "key_ttl")]
    known = {"required": ["after"], "properties": {"after": {"minItems": 1}}}  # ids of jobs that the store has
    member = {"required": ["batch"]}  # the id of a batch that the store has
    job["not"] = {"anyOf": [known, member, *({"required": names} for names in apart)]}
    batch = schemas["BatchNewIn"]
    batch["not"] = {"required": ["parent"]}
    bare = {"not": {"anyOf": [{"required": [word]} for word in ("key", "group", "debounce")]}}
    for word in ("then", "on_success", "on_dead"):
        batch["properties"][word] = {"allOf": [{"$ref": "#/components/schemas/JobIn"}, bare]}
    job["dependentRequired"] = {"key_ttl": ["key"], "debounce": ["key"]}
    schemas["BulkIn"]["anyOf"] = schemas["RetryAllIn"]["anyOf"] = DRY_OR_TOKEN
    schemas["ChangeAllIn"]["anyOf"] = [DRY_OR_TOKEN[0], _and_a_priority(DRY_OR_TOKEN[1])]
    change = schemas["ChangeIn"]
    change["anyOf"] = [{"required": [name]} for name in ("queue", "priority", "run_at", "delay")]
    change["not"] = {"required": ["delay", "run_at"]}
    schemas["FilterIn"]["properties"]["argument"] = {
        "anyOf": [{"type": "string", "maxLength": 256, "pattern": INDEXED}, {"type": "null"}]
    }
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "argument":
                    parameter["schema"]["pattern"] = INDEXED
                if parameter.pop("allowEmptyValue", False):
                    parameter["schema"] = {"anyOf": [parameter["schema"], {"const": ""}]}


def _and_a_priority(token: dict[str, Any]) -> dict[str, Any]:
    return {
        "required": [*token["required"], "priority"],
        "properties": {**token["properties"], "priority": {"type": "integer"}},
    }


def _with(word: str, task: str, payload: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"required": [word, *required], "properties": {word: {"const": task}, "payload": payload}}
