"""The 16-byte ids of clusters, topics and directories, and Kafka's text for them: URL-safe base64 without padding."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random

ZERO_UUID = bytes(16)  # "no id" wherever the protocol has a uuid


def uuid_text(uuid: bytes) -> str:
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def parse_uuid(text: str) -> bytes:
    """The id that a text of 22 characters stands for, or a ValueError."""
    try:
        uuid = urlsafe_b64decode(text.rstrip("=") + "==")
    except ValueError:
        uuid = b""
    # the round trip also refuses what base64 passes over: strange characters, loose bits at the end
    if len(uuid) != 16 or uuid_text(uuid) != text.rstrip("="):
        raise ValueError(f"'{text}' is not an id: 22 characters of A-Z, a-z, 0-9, - and _ are wanted")
    return uuid


def random_uuid(random: Random) -> bytes:
    """A fresh id of version 4, as Kafka makes them.

    Its version bits keep it apart from zero and from Kafka's reserved ids, which are small numbers. A leading dash
    would look like an option on a command line, so such ids are not handed out.
    """
    while True:
        uuid = bytearray(random.randbytes(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        if not uuid_text(bytes(uuid)).startswith("-"):
            return bytes(uuid)
