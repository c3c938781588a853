"""From a caller's values to the bytes of keys and values, and back.

`key_serializer`, `value_deserializer` and the like take a name of `SERIALIZERS`, or any object with these two methods:
a schema registry's, say. `None` is no value (in a compacted topic it deletes) and is never handed to a serialiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from barnabas.client.options import WrongOption


@runtime_checkable
class Serializer(Protocol):
    def serialize(self, topic: str, value: Any) -> bytes: ...

    def deserialize(self, topic: str, data: bytes) -> Any: ...


class _Text:
    def serialize(self, topic: str, value: str) -> bytes:
        return value.encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode()


class _Json:
    def serialize(self, topic: str, value: Any) -> bytes:
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def deserialize(self, topic: str, data: bytes) -> Any:
        import json

        return json.loads(data)


SERIALIZERS: Mapping[str, Serializer | None] = {"bytes": None, "str": _Text(), "json": _Json()}


def serializer(option: str, choice: str | Serializer) -> Serializer | None:
    """The serialiser that an option names; None leaves bytes as they are."""
    if isinstance(choice, str):
        if choice not in SERIALIZERS:
            raise WrongOption(f"{option}={choice!r} is none of {', '.join(SERIALIZERS)}, nor a serialiser of your own")
        return SERIALIZERS[choice]
    if not isinstance(choice, Serializer):
        raise WrongOption(
            f"{option} of type {type(choice).__name__} lacks serialize(topic, value) or deserialize(topic, data)"
        )
    return choice
