"""Rows on their way into a table: tasks stage them by attempt, and they count only once the driver merges them.

Each write has a staging table of its own, which is dropped after the merge. It has the columns of the rows, of the
types that a new table would give them, and numbers beside them: Spark's id of the task's *attempt*, and the row's
position in the batch. A task that Spark repeats, and one that runs twice by speculation, stage rows under different
attempts. The driver learns from the tasks that Spark counts which attempts to merge. What a task of another write still
stages, after its driver has died, is in another table, which is dropped when the sink is next prepared.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.spark.database.columns import RowColumn
from barnabas.spark.database.connections import Database, Session, TableName
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.sinks import OFFSET, PARTITION, TOPIC

log = logging.getLogger(__name__)

ATTEMPT = "barnabas_attempt"
POSITION = ("barnabas_part", "barnabas_offset", "barnabas_row")
"""Rows are in the order of these columns."""
ORIGIN = (TOPIC, PARTITION, OFFSET)
"""Columns of the rows that say which record they come from."""


def staging_prefix(sink_key: str) -> str:
    """What the names of a sink's staging tables begin with: readable, unique and short enough for every database."""
    digest = hashlib.sha256(sink_key.encode()).hexdigest()[:8]
    return f"barnabas_staging_{re.sub(r'[^a-z0-9]+', '_', sink_key.lower())[:30]}_{digest}"


def new_staging(sink_key: str) -> TableName:
    """The name of a staging table that no other write uses."""
    return TableName(None, f"{staging_prefix(sink_key)}_{secrets.token_hex(3)}")


def create_staging(session: Session, table: TableName, columns: Sequence[RowColumn], key: Sequence[str]) -> None:
    dialect = session.dialect
    declared = [dialect.declared(RowColumn(name, "bigint"), is_key=True) for name in (ATTEMPT, *POSITION)]
    # Columns of the key are declared as they are in a table of keys, or they would be compared differently here.
    declared += [dialect.declared(column, is_key=column.name in key) for column in columns]
    session.execute(
        f"CREATE {dialect.staging_table} {session.quoted(table)} ({', '.join(declared)}){dialect.table_options}"
    )


def drop_staging(database: Database, tables: Iterable[TableName]) -> None:
    """Drop staging tables; one that a task still writes to is left until the sink is next prepared."""
    for table in tables:
        try:
            with database.connected() as session:
                session.limit_lock_wait()
                session.execute(f"DROP TABLE IF EXISTS {session.quoted(table)}")
        except SinkError as problem:
            log.warning("staging table %s is not dropped before the next run: %s", table, problem)


@dataclass(frozen=True, slots=True)
class Filled:
    """What a task returns to the driver."""

    task: int
    attempt: int
    rows: int
