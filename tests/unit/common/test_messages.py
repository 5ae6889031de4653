"""Messages survive the wire whole, or are refused."""

from __future__ import annotations

import typing

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import messages
from common.messages import AnyBody, Body, Header, MessageError, Ping, StepDone, pack, unpack

BODIES = typing.get_args(AnyBody)
DTYPES = ["int16", "int32", "uint8", "float32"]


def example(kind: type) -> Body:
    """A body of this kind, made from its type alone."""
    schema = msgspec.json.schema_components([kind])[1]
    return msgspec.convert(_value(schema[kind.__name__], schema), kind)


def _value(schema: dict, components: dict) -> object:
    if "$ref" in schema:
        return _value(components[schema["$ref"].rsplit("/", 1)[1]], components)
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], components)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if schema["type"] == "object":
        return {name: _value(field, components) for name, field in schema.get("properties", {}).items()}
    if schema["type"] == "array":
        items = schema.get("prefixItems") or [schema.get("items", {"type": "string"})]
        return [_value(item, components) for item in items]
    return {"string": "a", "integer": 3, "number": 1.5, "boolean": True, "null": None}[schema["type"]]


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_every_body_round_trips(kind: type) -> None:
    body = example(kind)
    message = unpack(pack(body, source="a", target="b"))
    assert message.body == body
    assert type(message.body) is kind
    assert (message.source, message.target) == ("a", "b")


def test_every_body_is_known_to_the_wire() -> None:
    kinds = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Body)]
    assert set(BODIES) == set(kinds) - {Body}


@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 5), min_size=1, max_size=3), flip=st.booleans())
def test_arrays_round_trip_without_a_copy_on_arrival(dtype: str, shape: list[int], flip: bool) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = array.T if flip else array
    frames = [bytes(frame) for frame in pack(Ping(), [array], source="a", target="b")]
    (received,) = unpack(frames).arrays
    assert received.dtype == array.dtype
    assert np.array_equal(received, array)
    assert not received.flags.writeable
    assert not received.flags.owndata


def test_a_frame_of_the_wrong_size_is_refused() -> None:
    frames = pack(StepDone(1, 0.5), [np.zeros((2, 10), np.int16)], source="a", target="b")
    with pytest.raises(MessageError, match="fit"):
        unpack([frames[0], bytes(frames[1])[:-1]])
    with pytest.raises(MessageError, match="array frames"):
        unpack(frames[:1])


def test_other_versions_and_unknown_fields_are_refused() -> None:
    header = msgspec.msgpack.decode(pack(Ping(), source="a", target="b")[0])
    with pytest.raises(MessageError, match="version 99"):
        unpack([msgspec.msgpack.encode(header | {"version": 99})])
    with pytest.raises(MessageError, match="unknown field"):
        unpack([msgspec.msgpack.encode(header | {"more": 1})])
    with pytest.raises(MessageError, match="unknown field"):
        unpack([msgspec.msgpack.encode(header | {"body": header["body"] | {"more": 1}})])


@given(st.binary(max_size=100))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        unpack([data])


def test_negative_shapes_are_refused() -> None:
    info = messages.ArrayInfo("uint8", [-1, -4])
    header = msgspec.msgpack.encode(Header(messages.PROTOCOL_VERSION, "a", "b", Ping(), [info]))
    with pytest.raises(MessageError):
        unpack([header, b"abcd"])
