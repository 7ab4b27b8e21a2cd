"""The HTTP API: one table of routes, from which the routing, the roles, the OpenAPI document and the tests are made."""
