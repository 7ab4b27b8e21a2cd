"""The HTTP API: one table of routes, from which the routing, the roles, the OpenAPI document and the tests are made."""

from hawser.api.identity import Identity
from hawser.store.api_key import Role

__all__ = ["Identity", "Role"]
