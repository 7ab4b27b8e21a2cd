"""The OpenAPI 3.1 document, made from the table of routes and the types of the bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import msgspec

from hawser.api.bodies import ID, NAME
from hawser.api.problem import PROBLEM_MEDIA_TYPE, ProblemDocument
from hawser.api.route import NO_KEY, Route, Table
from hawser.job import MAX_ATTEMPTS
from hawser.task import Task

_REF: Final = "#/components/schemas/{name}"

_PATH_SHAPES: Final = {
    "id": ID,
    "queue": NAME,
    "schedule": NAME,
    "task": NAME,
    "worker": r"^[^/\x00]{1,256}$",
    "group": r"^[^/\x00]{1,128}$",
    "name": r"^[^/\x00]{1,256}$",
}

_TAGS: Final = {
    "jobs": "Enqueue jobs, look at them, cancel them.",
    "batches": "Jobs that are counted together, and jobs that follow when they have ended.",
    "pull": "Work on jobs from any language: claim, settle, extend.",
    "dlq": "Dead letters: jobs that have used up their attempts.",
    "operations": "Actions on many jobs, while they run.",
    "queues": "Queues: figures, limits, policies, pauses.",
    "tasks": "Tasks: what they take, pauses.",
    "schedules": "Schedules and their ticks.",
    "figures": "Figures, history, workers, metrics.",
    "system": "Health, audit, changes, this document.",
}
_TAG_OF: Final = {
    "claims": "pull",
    "settlements": "pull",
    "extensions": "pull",
    "job-types": "tasks",
    "limits": "queues",
    "breakers": "tasks",
    "ticks": "schedules",
    "workers": "figures",
    "stats": "figures",
    "overview": "figures",
    "history": "figures",
    "metrics": "figures",
}

_ALWAYS: Final = (400, 408, 431, 500, 503)
_GUARDED: Final = (401, 403, 429)


class Description:
    """The document of one server, as JSON. Made once for the same tasks: it takes 30 ms, in which no other request is served."""

    def __init__(self, table: Table, tasks: Mapping[str, Task[..., Any]], *, require_key: bool, most: int = MAX_ATTEMPTS) -> None:
        self._table = table
        self._tasks = tasks
        self._require_key = require_key
        self._most = most
        self._known: list[str] | None = None
        self._body = b""

    def encoded(self) -> bytes:
        known = sorted(self._tasks)
        if known != self._known:
            payloads = {name: self._tasks[name].parameters.schema() for name in known}
            self._body = msgspec.json.encode(document(self._table, payloads, require_key=self._require_key, most=self._most))
            self._known = known
        return self._body


def document(
    table: Table, payloads: Mapping[str, dict[str, Any]], *, require_key: bool = False, most: int = MAX_ATTEMPTS
) -> dict[str, Any]:
    """What a server offers whose tasks take these payloads, and that lets callers ask for so many attempts."""
    types = list(dict.fromkeys([ProblemDocument, *(kind for route in table.routes for kind in _types(route))]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refs = dict(zip(types, schemas, strict=True))
    components |= {f"payload.{task}": _placed(schema, f"payload.{task}") for task, schema in payloads.items()}
    for name, words in (("JobIn", ("task", "type")), ("ScheduleIn", ("task",))):
        _say_of_tasks(components[name], payloads, words)
    components["JobIn"]["properties"]["max_attempts"]["maximum"] = most
    paths: dict[str, dict[str, Any]] = {}
    for route in table.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hawser", "version": version(), "description": "Enqueue, work and operate a durable job queue."},
        # Beside this document, wherever it is mounted.
        "servers": [{"url": "./", "description": "This server"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": plain(components),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "Made by `hawser keys create`."}},
        },
        # Unless all need a key, callers on this machine do not.
        "security": [{"key": []}] if require_key else [{"key": []}, {}],
    }


def _types(route: Route) -> Iterable[Any]:
    if route.takes.has_body:
        yield route.takes.body
    for answer in route.answers.values():
        yield from (kind for kind in _kinds(answer) if kind not in (dict, str))


def _kinds(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _say_of_tasks(schema: dict[str, Any], payloads: Mapping[str, dict[str, Any]], words: tuple[str, ...]) -> None:
    """Which tasks there are, and what each takes. Beside the schema and not as a union of all tasks: programs that write
    clients would make a class of each."""
    schema["properties"]["payload"] |= {"type": "object"}
    if payloads:
        schema["properties"]["task"] = {"type": "string", "enum": list(payloads)}
    if "type" in words:
        schema["required"] = ["task"]
        schema["properties"]["type"] |= {"deprecated": True, "description": "Another word for `task`."}
    schema["x-payloads"] = {
        task: {
            "payload": {"$ref": _REF.format(name=f"payload.{task}")},
            "required": ["payload"] if payload.get("required") else [],
        }
        for task, payload in payloads.items()
    }


def _placed(schema: Any, name: str) -> Any:
    """A schema whose references lead into itself, as a part of the document."""
    match schema:
        case dict():
            return {key: _placed(part, name) for key, part in schema.items()}
        case list():
            return [_placed(part, name) for part in schema]
        case str() if schema.startswith("#/$defs/"):
            return f"{_REF.format(name=name)}{schema.removeprefix('#')}"
    return schema


def _operation(route: Route, refs: dict[Any, dict[str, Any]], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [_tag(route)],
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "parameters": [*_in_path(route), *_in_query(route), *_in_header(route)],
        "responses": {str(status): _response(route, status, kind, refs, components) for status, kind in route.answers.items()},
    }
    operation["responses"] |= {str(status): _problem(status, refs) for status in _problems(route)}
    if route.method == "GET" and route.media_type == "application/json":
        operation["responses"]["304"] = {"description": "Not changed since the answer whose ETag was sent in If-None-Match"}
    if route.takes.has_body:
        schema = components[route.takes.body.__name__]
        needed = bool(schema.get("required")) or route.takes.body.__name__ in ("BulkIn", "RetryAllIn", "ChangeAllIn", "ChangeIn")
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": refs[route.takes.body]}}}
    if route.roles is NO_KEY:
        operation["security"] = []
    else:
        operation["description"] = f"Roles: {', '.join(sorted(route.roles))}."
    return operation


def _in_path(route: Route) -> Iterable[dict[str, Any]]:
    for name in route.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": _PATH_SHAPES[name]}}


def _in_query(route: Route) -> Iterable[dict[str, Any]]:
    if not route.takes.has_query:
        return
    for name in get_type_hints(route.takes.query):
        schema = msgspec.json.schema(route.takes.query)["$defs"][route.takes.query.__name__]["properties"][name]
        schema.pop("default", None)
        told = "As if left out when it is empty."
        yield {
            "name": name,
            "in": "query",
            "required": False,
            "allowEmptyValue": True,
            "description": told,
            "schema": _typed(schema),
        }


def _in_header(route: Route) -> Iterable[dict[str, Any]]:
    if route.takes.repeats:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The caller's name for this request. Sent again with the same body it makes no second job.",
            "schema": {"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
        }


def _problems(route: Route) -> list[int]:
    statuses = {*_ALWAYS}
    if route.roles is not NO_KEY:
        statuses |= {*_GUARDED}
    if route.parameters:
        statuses |= {404}
    if route.acts:
        statuses |= {404, 409}
    if (
        route.takes.repeats or {200, 201} <= route.answers.keys()
    ):  # what it makes may have an id of the caller's, which may be taken
        statuses |= {409}
    if route.takes.has_body:
        statuses |= {413, 415}
    return sorted(statuses)


def _response(
    route: Route, status: int, answer: Any, refs: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    schemas = [refs.get(kind, {"type": "string"} if kind is str else {"type": "object"}) for kind in _kinds(answer)]
    schema = schemas[0]
    if len(schemas) > 1:
        name = "Or".join(kind.__name__ for kind in _kinds(answer))
        components[name] = {"title": name, "oneOf": schemas}
        schema = {"$ref": _REF.format(name=name)}
    return {"description": HTTPStatus(status).phrase, "content": {route.media_type: {"schema": schema}}}


def _tag(route: Route) -> str:
    first, *rest = route.path.strip("/").split("/")
    word = rest[0] if first == "admin" else first
    tag = _TAG_OF.get(word, word)
    return tag if tag in _TAGS else "system"


def plain(components: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas that programs can write classes from: no union stands inside another schema without a name of its own."""
    named: dict[str, Any] = {}

    def walk(schema: Any, name: str) -> Any:
        match schema:
            case {"properties": properties}:
                parts = {key: walk(part, f"{name}{key.title().replace('_', '')}") for key, part in properties.items()}
                return {**schema, "properties": parts}
            case {"type": "array", "items": items}:
                return {**schema, "items": walk(items, f"{name}Item")}
            case {"anyOf": choices}:
                return union(schema, choices, name)
        return _typed(schema)

    def union(schema: dict[str, Any], choices: list[Any], name: str) -> Any:
        others = [choice for choice in choices if choice != {"type": "null"}]
        rest = {key: part for key, part in schema.items() if key not in ("anyOf", "discriminator")}
        if len(others) == 1:
            one = walk(others[0], name)
            if isinstance(one.get("type"), str) and "enum" not in one:
                return {**rest, **one, "type": [one["type"], "null"]}
            return {**rest, "anyOf": [one, {"type": "null"}]}
        named[name] = {
            "title": name,
            "oneOf": [_typed(each) for each in others],
            **{key: part for key, part in schema.items() if key == "discriminator"},
        }
        ref = {"$ref": _REF.format(name=name)}
        return {**rest, **ref} if len(others) == len(choices) else {**rest, "anyOf": [ref, {"type": "null"}]}

    whole = {name: schema if name.startswith("payload.") else walk(schema, name) for name, schema in components.items()}
    return whole | named


def _typed(schema: Any) -> Any:
    """Say of texts to choose from that they are texts."""
    match schema:
        case {"enum": values} if "type" not in schema and all(isinstance(value, str) for value in values):
            return {"type": "string", **schema}
    return schema


def _problem(status: int, refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM_MEDIA_TYPE: {"schema": refs[ProblemDocument]}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return response


def version() -> str:
    from hawser import __version__  # noqa: PLC0415  # the package itself imports the app, and the app us

    return __version__
