"""What is asked of a batch before it is appended.

A leader's append itself makes one combined test of the header, because it runs for every batch; only when that test
fails does `refusal` find out why, in the order in which Kafka looks. The records are opened only where the topic
demands it (another codec than the producer's, or keys for compaction) and where the header's times are out of range:
the error then names each record that is to blame, so that a client need not suspect the others (KIP-467).

A follower takes what its leader has found good, as long as the bytes are whole and the offsets go on.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    crc_of,
    headers,
    read_header,
    verify,
)
from barnabas.records.compression import BY_NAME, DEFAULT_LIMIT_BYTES, Compression, DecompressedTooLarge
from barnabas.records.reader import InvalidRecords, find_invalid_records, recompress
from barnabas.storage.log_config import LogConfig

LAST_COMPRESSION = max(Compression)
_MOST_EXPANSION = 32  # times max.message.bytes: what a batch may become when it is opened, which holds up the loop
_MOST_RECORD_ERRORS = 10_000  # in one response: a small batch can hold millions of records once it is decompressed
_FOREVER = 2**63 - 1
_CODECS = {**BY_NAME, "producer": None, "uncompressed": Compression.NONE}


def refusal(records: memoryview, config: LogConfig) -> KafkaError:
    """Why a batch that failed the combined test is not taken."""
    if len(records) < HEADER_SIZE:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are too few for a record batch")
    header = read_header(records)
    code, message = _reason(records, header, config)
    return KafkaError(code, message)


def _reason(records: memoryview, header: BatchHeader, config: LogConfig) -> tuple[ErrorCode, str]:
    if header.magic != MAGIC:
        return ErrorCode.INVALID_RECORD, f"the batch has magic {header.magic}; only {MAGIC} is taken"
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or header.size > len(records):
        return ErrorCode.INVALID_RECORD, f"the batch says {header.size} bytes; {len(records)} came"
    if header.size < len(records):
        return ErrorCode.INVALID_RECORD, "more than one batch came for a partition; send one"
    if header.base_offset != 0:
        return ErrorCode.INVALID_RECORD, f"the batch has base offset {header.base_offset}; a producer's must be 0"
    if header.size > config.max_message_bytes:
        return (
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if crc_of(records) != header.crc:
        return ErrorCode.CORRUPT_MESSAGE, "the batch has a wrong CRC"
    if header.attributes & CONTROL:
        return ErrorCode.INVALID_RECORD, "clients may not write control batches"
    if header.compression > LAST_COMPRESSION:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"the batch has compression codec {header.compression}"
    if header.attributes & LOG_APPEND_TIME and not config.is_log_append_time:
        return ErrorCode.INVALID_TIMESTAMP, "the batch claims LogAppendTime, but the topic keeps CreateTime"
    return (
        ErrorCode.INVALID_RECORD,
        f"the batch counts {header.record_count} records, but its last offset delta is {header.last_offset_delta}",
    )


class RejectedRecords(KafkaError):
    """A batch that is rejected for some of its records, in Kafka's words, which programs look for."""

    def __init__(self, invalid: InvalidRecords, oldest_ms: int, newest_ms: int, partition: str) -> None:
        self.record_errors = tuple(
            (
                index,
                f"Compacted topic cannot accept message without key in topic partition {partition}"
                if timestamp is None
                else f"Timestamp {timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{oldest_ms}, {newest_ms}]",
            )
            for index, timestamp in invalid.first
        )
        if any(timestamp is not None for _, timestamp in invalid.first):
            super().__init__(
                ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
            )
            return
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{message}')" for index, message in self.record_errors[:3]
        )
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {invalid.total} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
        )


def check_records(batch: memoryview, config: LogConfig, now_ms: int, partition: str) -> None:
    """Look at every record: RejectedRecords if one lacks a key that compaction needs, or has a time out of range."""
    oldest_ms, newest_ms = 0, _FOREVER
    if not config.is_log_append_time:
        oldest_ms = now_ms - config.message_timestamp_before_max_ms
        newest_ms = min(now_ms + config.message_timestamp_after_max_ms, _FOREVER)
    try:
        invalid = find_invalid_records(
            batch,
            require_key=config.is_compacted,
            oldest_ms=oldest_ms,
            newest_ms=newest_ms,
            most=_MOST_RECORD_ERRORS,
            limit_bytes=_limit_bytes(config),
        )
    except DecompressedTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if invalid.total:
        raise RejectedRecords(invalid, oldest_ms, newest_ms, partition)


def check_timestamps(records: memoryview, now_ms: int, config: LogConfig, partition: str) -> None:
    """Refuse times that are too far from the broker's; -1 is no time."""
    header = read_header(records)
    ahead_ms, behind_ms = header.max_timestamp - now_ms, now_ms - header.base_timestamp
    is_ahead = header.max_timestamp >= 0 and ahead_ms > config.message_timestamp_after_max_ms
    if is_ahead or (header.base_timestamp >= 0 and behind_ms > config.message_timestamp_before_max_ms):
        check_records(records, config, now_ms, partition)
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the batch has times from {header.base_timestamp} to {header.max_timestamp} in its header, "
            "which none of its records has, and which are out of range",
        )


def check_copies(records: memoryview, least_offset: int) -> list[tuple[int, BatchHeader]]:
    """Position and header of the whole batches that a leader sent, from an offset on; CorruptBatch if one is bad."""
    batches = []
    for position, header in headers(records):
        verify(records, position, header)
        if header.base_offset < least_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"offset {header.base_offset} came where {least_offset} was the least to expect")
        least_offset = header.next_offset
        batches.append((position, header))
    if not batches:
        raise CorruptBatch(f"{len(records)} bytes, no batch")
    return batches


def compression_of(config: LogConfig) -> tuple[Compression | None, int | None]:
    """The codec that the topic insists on, and its level; None if the producer's is kept."""
    codec = _CODECS[config.compression_type]
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return codec, None if codec is None else levels.get(codec)


def open_batch(batch: memoryview, attributes: int, config: LogConfig, now_ms: int, partition: str) -> memoryview:
    """The batch as the topic wants it, with its records checked and recompressed if need be."""
    codec, level = compression_of(config)
    is_kept = codec is None or codec == attributes & COMPRESSION_MASK
    if config.is_compacted or not is_kept:
        check_records(batch, config, now_ms, partition)
    if codec is None or is_kept:
        return batch
    rewritten = recompress(batch, codec, level, limit_bytes=_limit_bytes(config))
    if len(rewritten) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(rewritten)} bytes as {config.compression_type}; "
            f"max.message.bytes is {config.max_message_bytes}",
        )
    return memoryview(rewritten)


def _limit_bytes(config: LogConfig) -> int:
    return min(_MOST_EXPANSION * config.max_message_bytes, DEFAULT_LIMIT_BYTES)
