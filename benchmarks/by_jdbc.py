"""An upsert as a data engineer would write it: Spark's tuned JDBC writer fills a staging table, a statement merges it.

The drivers send many rows in one statement. Of several rows with one key the last one of the topic stays.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

BATCH_ROWS = 10_000
_POSTGRESQL = (
    "DROP TABLE IF EXISTS by_hand_staged, by_hand",
    'CREATE TABLE by_hand (id BIGINT PRIMARY KEY, "user" TEXT, amount DOUBLE PRECISION, at TIMESTAMPTZ)',
    'CREATE UNLOGGED TABLE by_hand_staged (partition INT, "offset" BIGINT, id BIGINT, "user" TEXT,'
    " amount DOUBLE PRECISION, at TIMESTAMPTZ)",
)
_POSTGRESQL_MERGE = (
    'INSERT INTO by_hand SELECT DISTINCT ON (id) id, "user", amount, at FROM by_hand_staged'
    ' ORDER BY id, partition DESC, "offset" DESC'
    ' ON CONFLICT (id) DO UPDATE SET "user" = excluded."user", amount = excluded.amount, at = excluded.at'
)
_MYSQL = (
    "DROP TABLE IF EXISTS by_hand_staged, by_hand",
    "CREATE TABLE by_hand (id BIGINT PRIMARY KEY, user LONGTEXT, amount DOUBLE, at DATETIME(6))",
    "CREATE TABLE by_hand_staged (`partition` INT, `offset` BIGINT, id BIGINT, user LONGTEXT, amount DOUBLE,"
    " at DATETIME(6))",
)
_MYSQL_MERGE = (
    "INSERT INTO by_hand SELECT id, user, amount, at FROM by_hand_staged ORDER BY `partition`, `offset`"
    " ON DUPLICATE KEY UPDATE user = VALUES(user), amount = VALUES(amount), at = VALUES(at)"
)


def upsert(rows: DataFrame, url: str) -> None:
    """Into a new table of the database."""
    scheme, place = urlsplit(url).scheme, url.partition("@")[2]
    user = str(urlsplit(url).username)
    if scheme == "postgresql":
        prepare, merge = _POSTGRESQL, _POSTGRESQL_MERGE
        jdbc, driver = f"jdbc:postgresql://{place}?reWriteBatchedInserts=true", "org.postgresql.Driver"
    else:
        prepare, merge = _MYSQL, _MYSQL_MERGE
        jdbc = f"jdbc:mysql://{place}?rewriteBatchedStatements=true&useServerPrepStmts=false&connectionTimeZone=UTC"
        driver = "com.mysql.cj.jdbc.Driver"
    with closing(_connect(scheme, url)) as connection, closing(connection.cursor()) as cursor:
        for statement in prepare:
            cursor.execute(statement)
        connection.commit()
        options = {"url": jdbc, "driver": driver, "user": user, "batchsize": str(BATCH_ROWS), "isolationLevel": "NONE"}
        rows.write.format("jdbc").options(**options, dbtable="by_hand_staged").mode("append").save()
        cursor.execute(merge)
        connection.commit()


def count(url: str) -> int:
    """The rows that the last upsert has left."""
    with closing(_connect(urlsplit(url).scheme, url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT count(*) FROM by_hand")
        return int(cursor.fetchone()[0])


def _connect(scheme: str, url: str) -> Any:
    if scheme == "postgresql":
        import psycopg

        return psycopg.connect(url)
    import pymysql

    place = urlsplit(url)
    return pymysql.connect(host=place.hostname, port=place.port or 0, user=place.username, database=place.path[1:])
