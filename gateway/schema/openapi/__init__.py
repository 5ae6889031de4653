"""The OpenAPI 3.1 document of the HTTP API, made from the types that the endpoints use."""

from gateway.schema.openapi.document import document

__all__ = ["document"]
