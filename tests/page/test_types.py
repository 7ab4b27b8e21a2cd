"""What the dashboard takes the API's answers for, held against the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.test_openapi import described
from tests.docs.documents import ROOT

SOURCE = (ROOT / "ui/src/api.ts").read_text(encoding="utf-8")
INTERFACE = re.compile(r"export interface (\w+)(?: extends (\w+))? \{(.*?)\n?\}\n", re.DOTALL)
DECLARED = {name: body for name, _parent, body in INTERFACE.findall(SOURCE)}
NOT_OF_AN_ANSWER = frozenset({"Schema"})
"""A JSON schema, of which the document says no more than that it is an object."""


def fields(body: str) -> dict[str, str]:
    """The types of the fields, those of fields in fields left out."""
    while (flat := re.sub(r"\{[^{}]*\}", "object", body)) != body:
        body = flat
    return dict(re.findall(r"(\w+)\??: ([^;]+)", body))


def schema_of(name: str) -> dict[str, Any]:
    schemas: dict[str, Any] = described()["components"]["schemas"]
    return next(schemas[name + end] for end in ("View", "Out", "", "Line") if name + end in schemas)


def takes_null(schema: Any) -> bool:
    kinds = schema.get("type", [])
    return kinds == "null" or "null" in kinds or any(takes_null(each) for each in schema.get("anyOf", ()))


@pytest.mark.parametrize("name", sorted(DECLARED.keys() - NOT_OF_AN_ANSWER))
def test_a_type_of_the_page_has_the_fields_of_the_answer(name: str):
    properties = schema_of(name)["properties"]
    declared = fields(DECLARED[name])
    assert declared
    assert declared.keys() <= properties.keys()
    for field, kind in declared.items():
        assert not takes_null(properties[field]) or "null" in kind or "Json" in kind, f"{name}.{field} may be null"
