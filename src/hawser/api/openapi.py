"""The OpenAPI 3.1 document, made from the table of routes and the types of the bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import msgspec

from hawser.api.bodies import ID, NAME, JobIn
from hawser.api.problem import MEDIA_TYPE, ProblemDocument
from hawser.api.route import OPEN, Route, Table
from hawser.job import State

_REF: Final = "#/components/schemas/{name}"

_PATH_SHAPES: Final = {"id": ID, "queue": NAME, "task": NAME}

_ALWAYS: Final = (400, 500, 503)
_GUARDED: Final = (401, 403, 429)


@lru_cache(16)
def encoded(table: Table, tasks: tuple[str, ...]) -> bytes:
    """The document as JSON. Made once for the same tasks: it takes 30 ms, in which nobody else is served."""
    return msgspec.json.encode(document(table, tasks))


def document(table: Table, tasks: Sequence[str]) -> dict[str, Any]:
    """What a server of these tasks offers."""
    types = list(dict.fromkeys([ProblemDocument, *(kind for route in table.routes for kind in _types(route))]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refs = dict(zip(types, schemas, strict=True))
    _one_word_for_the_task(components["JobIn"], list(tasks))
    paths: dict[str, dict[str, Any]] = {}
    for route in table.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hawser", "version": _version(), "description": "Enqueue, work and operate a durable job queue."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "Made by `hawser keys create`."}},
        },
        "security": [{"key": []}, {}],
    }


def _types(route: Route) -> Iterable[Any]:
    if route.has_body:
        yield route.body
    for answer in route.answers.values():
        yield from (kind for kind in _kinds(answer) if kind not in (dict, str))


def _kinds(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _one_word_for_the_task(schema: dict[str, Any], tasks: list[str]) -> None:
    """`task` or `type`, one of them; and which there are."""
    for word in ("task", "type"):
        schema["properties"][word] = {"type": "string", "enum": tasks} if tasks else {"type": "string", "pattern": NAME}
    schema["oneOf"] = [{"required": ["task"]}, {"required": ["type"]}]
    schema["properties"]["payload"] |= {"type": "object"}


def _operation(route: Route, refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
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
        needed = bool(msgspec.json.schema(route.body)["$defs"][route.body.__name__].get("required")) or route.body is JobIn
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
        if "$ref" in schema:
            schema = {"enum": [state.value for state in State]}
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
