"""How Schemathesis writes and reads msgpack, which it does not know by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray) else getattr(value, "data", str(value))


@schemathesis.serializer("application/msgpack")
def write(ctx: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value, enc_hook=_plain)
    except OverflowError:  # integers of more than 64 bits, of which msgpack has none
        return msgspec.json.encode(value, enc_hook=_plain)


@schemathesis.deserializer("application/msgpack")
def read(ctx: Any, response: Any) -> Any:
    """Binary as base64, as the schema of JSON words it."""
    return msgspec.to_builtins(msgspec.msgpack.decode(response.content))
