from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.ids import ZERO_UUID, parse_uuid, random_uuid, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_text_and_bytes_stand_for_each_other(uuid: bytes) -> None:
    text = uuid_text(uuid)
    assert len(text) == 22
    assert parse_uuid(text) == uuid


def test_known_ids_have_kafka_s_text() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text((1).to_bytes(16, "big")) == "AAAAAAAAAAAAAAAAAAAAAQ"  # the metadata topic's


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 21 + "!", "é" * 22, "A" * 5000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_uuid(text)


def test_random_ids_come_from_the_given_source_and_never_look_like_an_option() -> None:
    random = Random(1)
    ids = [random_uuid(random) for _ in range(2000)]
    assert ids[0] == random_uuid(Random(1))
    assert len(set(ids)) == 2000
    assert not any(uuid_text(uuid).startswith("-") for uuid in ids)
    assert all(uuid[6] >> 4 == 4 and uuid[8] >> 6 == 2 for uuid in ids)  # version 4 of RFC 9562
