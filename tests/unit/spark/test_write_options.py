"""Options of writing say what is wrong with them before anything is written."""

from __future__ import annotations

import pytest

from barnabas.client.options import WrongOption
from barnabas.spark.write_options import (
    DEFAULT_CONTROL_TOPIC,
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    parse_batch_write_options,
    parse_stream_write_options,
)

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def test_without_more_than_a_cluster_and_a_topic_a_write_is_at_least_once() -> None:
    options = parse_batch_write_options({**BOOTSTRAP, "topic": "orders"})
    assert (options.topic, options.prefix, options.write_id) == ("orders", None, None)
    assert options.kafka.bootstrap == "localhost:9092"
    assert parse_stream_write_options({**BOOTSTRAP, "checkpointlocation": "/tmp/x"}).topic is None


def test_options_of_kafkas_producer_are_handed_on_under_our_names() -> None:
    given = {
        "kafka.acks": "1",
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "7",
        "kafka.enable.idempotence": "false",
        "kafka.retries": "3",
        "kafka.send.buffer.bytes": "4096",
    }
    settings = parse_batch_write_options({**BOOTSTRAP, **given}).kafka.settings
    assert settings == {"acks": 1, "compression_type": "zstd", "linger_ms": 7, "enable_idempotence": False}


@pytest.mark.parametrize("given", ["true", "false"])
def test_include_headers_is_taken_as_sparks_own_sink_takes_it(given: str) -> None:
    with_it = parse_batch_write_options({**BOOTSTRAP, "includeheaders": given})
    assert with_it == parse_batch_write_options(BOOTSTRAP)
    assert parse_stream_write_options({**BOOTSTRAP, "includeheaders": given}) == with_it


def test_exactly_once_has_a_prefix_and_may_have_more() -> None:
    exact = {**BOOTSTRAP, "transactionalidprefix": "orders-to-shouts"}
    options = parse_batch_write_options(exact)
    assert (options.prefix, options.control_topic) == ("orders-to-shouts", DEFAULT_CONTROL_TOPIC)
    assert options.transaction_timeout_ms == DEFAULT_TRANSACTION_TIMEOUT_MS
    more = {"writeid": "2026-11-16", "controltopic": "mine", "kafka.transaction.timeout.ms": "60000"}
    options = parse_batch_write_options({**exact, **more})
    assert (options.write_id, options.control_topic, options.transaction_timeout_ms) == ("2026-11-16", "mine", 60_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topik": "orders"}, "no option 'topik'; did you mean 'topic'"),
        ({"topic": "or ders"}, "topic='or ders' is wrong: it must be a topic's name"),
        ({"includeheaders": "some"}, "includeHeaders='some' is wrong: it must be true or false"),
        ({"transactionalidprefix": " "}, "transactionalIdPrefix=' ' is wrong: it must be a name"),
        ({"writeid": "x"}, "writeId is of use with transactionalIdPrefix only"),
        ({"controltopic": "x"}, "controlTopic is of use with transactionalIdPrefix only"),
        ({"transactionalidprefix": "p", "writeid": ""}, "writeId='' is wrong: it must be a name for this write"),
        ({"transactionalidprefix": "p", "kafka.acks": "1"}, "transactionalIdPrefix needs kafka.acks=all"),
        ({"transactionalidprefix": "p", "kafka.enable.idempotence": "false"}, "needs kafka.acks=all and kafka.enable"),
        ({"kafka.transactional.id": "mine"}, "kafka.transactional.id cannot be set: .* set transactionalIdPrefix"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type='rar' is wrong: it must be one of none, gzip"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer cannot be set: values are written as bytes"),
        ({"kafka.acks": "0", "kafka.enable.idempotence": "true"}, "enable_idempotence=True needs acks='all'"),
        ({"kafka.linger": "1"}, "no option 'kafka.linger'; did you mean 'kafka.linger.ms'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        parse_batch_write_options({**BOOTSTRAP, **given})


def test_a_stream_has_no_write_id() -> None:
    with pytest.raises(WrongOption, match="writeId is for batch writes"):
        parse_stream_write_options({**BOOTSTRAP, "transactionalidprefix": "p", "writeid": "x"})


def test_a_cluster_must_be_given() -> None:
    with pytest.raises(WrongOption, match=r"kafka\.bootstrap\.servers is missing"):
        parse_batch_write_options({"topic": "orders"})
