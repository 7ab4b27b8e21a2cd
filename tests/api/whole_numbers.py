"""A hook of schemathesis: numbers as the document means them, where JSON Schema is of two minds.

To JSON Schema 5.0 is an integer, and one may have a thousand digits. Here an integer has no point and no more than 64 bits.
"""

from __future__ import annotations

from typing import Any

import schemathesis

MOST = 2**63 - 1


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


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    return plain(body)
