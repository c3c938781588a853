"""Kafka's wire protocol as pure code: tables, the compiler that turns them into codecs, frames, headers."""
