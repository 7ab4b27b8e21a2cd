"""The OpenAPI 3.1 document, made from the table of routes and the types of the bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import msgspec

from hawser.api.bodies import ID, NAME
from hawser.api.problem import MEDIA_TYPE, ProblemDocument
from hawser.api.route import OPEN, Route, Table
from hawser.task import Task

_REF: Final = "#/components/schemas/{name}"

_PATH_SHAPES: Final = {"id": ID, "queue": NAME, "schedule": NAME, "task": NAME}

_DRY_OR_TOKEN: Final = [
    {"required": ["dry_run"], "properties": {"dry_run": {"const": True}}},
    {"required": ["token"], "properties": {"token": {"type": "string"}}},
]
"""A bulk action is a dry run, or has the token of one."""

_ALWAYS: Final = (400, 500, 503)
_GUARDED: Final = (401, 403, 429)


class Description:
    """The document of one server, as JSON. Made once for the same tasks: it takes 30 ms, in which nobody else is served."""

    def __init__(self, table: Table, tasks: Mapping[str, Task[..., Any]], *, require_key: bool) -> None:
        self._table = table
        self._tasks = tasks
        self._require_key = require_key
        self._known: list[str] | None = None
        self._body = b""

    def encoded(self) -> bytes:
        known = sorted(self._tasks)
        if known != self._known:
            payloads = {name: self._tasks[name].parameters.schema() for name in known}
            self._body = msgspec.json.encode(document(self._table, payloads, require_key=self._require_key))
            self._known = known
        return self._body


def document(table: Table, payloads: Mapping[str, dict[str, Any]], *, require_key: bool = False) -> dict[str, Any]:
    """What a server offers whose tasks take these payloads."""
    types = list(dict.fromkeys([ProblemDocument, *(kind for route in table.routes for kind in _types(route))]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refs = dict(zip(types, schemas, strict=True))
    components |= {f"payload.{task}": _placed(schema, f"payload.{task}") for task, schema in payloads.items()}
    _say_of_jobs(components["JobIn"], payloads)
    components["ScheduleIn"]["oneOf"] = [_job_of("task", task, payload) for task, payload in payloads.items()] or [{}]
    components["BulkIn"]["anyOf"] = _DRY_OR_TOKEN
    paths: dict[str, dict[str, Any]] = {}
    for route in table.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hawser", "version": _version(), "description": "Enqueue, work and operate a durable job queue."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "Made by `hawser keys create`."}},
        },
        # Unless all need a key, callers on this machine do not.
        "security": [{"key": []}] if require_key else [{"key": []}, {}],
    }


def _types(route: Route) -> Iterable[Any]:
    if route.has_body:
        yield route.body
    for answer in route.answers.values():
        yield from (kind for kind in _kinds(answer) if kind not in (dict, str))


def _kinds(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _say_of_jobs(schema: dict[str, Any], payloads: Mapping[str, dict[str, Any]]) -> None:
    """The rules between fields: `task` or `type`, one of them, with what that task takes; and others that go together or not."""
    schema["properties"]["payload"] |= {"type": "object"}
    schema["oneOf"] = [_job_of(word, task, payload) for task, payload in payloads.items() for word in ("task", "type")]
    schema["not"] = {"anyOf": [{"required": ["delay", "run_at"]}, {"required": ["task", "type"]}]}
    schema["dependentRequired"] = {"key_ttl": ["key"]}
    if not payloads:
        schema["oneOf"] = [{"required": ["task"]}, {"required": ["type"]}]


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


def _job_of(word: str, task: str, payload: dict[str, Any]) -> dict[str, Any]:
    said = {word: {"const": task}, "payload": {"$ref": _REF.format(name=f"payload.{task}")}}
    return {"required": [word, "payload"] if payload.get("required") else [word], "properties": said}


def _operation(route: Route, refs: dict[Any, dict[str, Any]], components: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "parameters": [*_in_path(route), *_in_query(route)],
        "responses": {str(status): _response(route, status, kind, refs) for status, kind in route.answers.items()},
    }
    operation["responses"] |= {str(status): _problem(status, refs) for status in _problems(route)}
    if route.method == "GET" and route.media_type == "application/json":
        operation["responses"]["304"] = {"description": "Not changed since the answer whose ETag was sent in If-None-Match"}
    if route.has_body:
        schema = components[route.body.__name__]
        needed = any(schema.get(rule) for rule in ("required", "oneOf", "anyOf"))
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": refs[route.body]}}}
    if route.roles is OPEN:
        operation["security"] = []
    else:
        operation["description"] = f"Roles: {', '.join(sorted(route.roles))}."
    return operation


def _in_path(route: Route) -> Iterable[dict[str, Any]]:
    for name in route.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": _PATH_SHAPES[name]}}


def _in_query(route: Route) -> Iterable[dict[str, Any]]:
    if not route.has_query:
        return
    for name in get_type_hints(route.query):
        schema = msgspec.json.schema(route.query)["$defs"][route.query.__name__]["properties"][name]
        schema.pop("default", None)
        empty = {"const": "", "description": "As if left out."}
        yield {"name": name, "in": "query", "required": False, "schema": {"anyOf": [schema, empty]}}


def _problems(route: Route) -> list[int]:
    statuses = {*_ALWAYS}
    if route.roles is not OPEN:
        statuses |= {*_GUARDED}
    if route.parameters:
        statuses |= {404}
    if route.acts:
        statuses |= {404, 409}
    if route.has_body:
        statuses |= {413, 415}
    return sorted(statuses)


def _response(route: Route, status: int, answer: Any, refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    schemas = [refs.get(kind, {"type": "string"} if kind is str else {"type": "object"}) for kind in _kinds(answer)]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"description": HTTPStatus(status).phrase, "content": {route.media_type: {"schema": schema}}}


def _problem(status: int, refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": refs[ProblemDocument]}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return response


def _version() -> str:
    from hawser import __version__  # noqa: PLC0415  # the package itself imports the app, and the app us

    return __version__
