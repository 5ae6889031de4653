"""The description of the HTTP API, in OpenAPI 3.1, made of the code that answers it."""

from gateway.schema.openapi.document import document

__all__ = ["document"]
