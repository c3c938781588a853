from __future__ import annotations

import pytest

from barnabas.spark.database.columns import Kind, TableColumn, check_fit, row_columns
from barnabas.spark.database.connections import Database, TableName
from barnabas.spark.database.dialects import MYSQL, POSTGRESQL, SQLITE, Update
from barnabas.spark.database.sink import DatabaseSettings, WriteMode
from barnabas.spark.database.staging import new_staging, staging_prefix
from barnabas.spark.pipeline.errors import SinkError

ORDERS = [
    TableColumn("id", "INTEGER", True, {Kind.INTEGER}),
    TableColumn("amount", "REAL", False, {Kind.INTEGER, Kind.REAL}),
]


def test_rows_that_fit_a_table_are_let_through() -> None:
    check_fit("orders", ORDERS, row_columns([("id", "bigint"), ("amount", "double")]))


def test_a_column_that_the_table_lacks_is_named_with_the_nearest() -> None:
    with pytest.raises(SinkError, match=r"table 'orders' has no column 'amounts' \(nearest: 'amount'\)"):
        check_fit("orders", ORDERS, row_columns([("id", "int"), ("amounts", "double")]))


def test_a_column_of_another_type_is_named_with_both_types() -> None:
    with pytest.raises(SinkError, match="'amount' of table 'orders' is REAL, and the rows have string"):
        check_fit("orders", ORDERS, row_columns([("id", "int"), ("amount", "string")]))


def test_a_required_column_that_the_rows_lack_is_named() -> None:
    with pytest.raises(SinkError, match=r"'id' of table 'orders' is NOT NULL .* no such column \(there are: amount\)"):
        check_fit("orders", ORDERS, row_columns([("amount", "double")]))


@pytest.mark.parametrize("nested", ["array<int>", "struct<a:int>", "map<string,int>", "interval day"])
def test_a_type_that_no_table_holds_is_refused_by_name(nested: str) -> None:
    with pytest.raises(SinkError, match=r"column 'items' is of type .*to_json"):
        row_columns([("items", nested)])


@pytest.mark.parametrize(
    ("declared", "kind", "accepted"),
    [
        ("VARCHAR(20)", Kind.TEXT, True),
        ("VARCHAR(20)", Kind.INTEGER, False),
        ("BIGINT", Kind.INTEGER, True),
        ("BIGINT", Kind.TEXT, False),
        ("DOUBLE", Kind.REAL, True),
        ("DOUBLE", Kind.TEXT, False),
        ("DATETIME", Kind.TIMESTAMP, True),
        ("DATETIME", Kind.TEXT, False),
        ("", Kind.BINARY, True),
    ],
)
def test_sqlite_columns_take_what_their_affinity_keeps(declared: str, kind: Kind, accepted: bool) -> None:
    assert (kind in SQLITE.accepts(declared)) is accepted


def test_names_are_quoted_as_each_database_wants_it() -> None:
    assert SQLITE.quoted('a"b%') == '"a""b%"'
    assert MYSQL.quoted("a`b%") == "`a``b%%`"
    assert POSTGRESQL.quoted('a"b%') == '"a""b%%"'


def test_mysql_compares_with_the_guarding_column_before_it_changes_it() -> None:
    clause = MYSQL.replace(Update("t", ["k"], ["seen", "v"], "seen"))
    assert clause.index("v = IF") < clause.index("seen = IF")


def test_a_path_is_a_sqlite_file_and_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/tmp")
    assert Database.at("shop.db") == Database.at("sqlite://shop.db") == Database("sqlite:///tmp/shop.db")


def test_an_error_never_tells_the_password() -> None:
    database = Database.at("mysql://ann:secret@db.example/shop", "another")
    assert database.label == "db.example:default port/shop"
    assert "another" not in repr(database)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysqll://h/d", r"'mysqll' is no database that is known here \(nearest: 'mysql'\)"),
        ("mysql://h", "mysql://user@host:port/name"),
    ],
)
def test_a_wrong_url_is_told_before_anything_is_tried(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DatabaseSettings(url=url, table="t")


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": WriteMode.UPSERT},
        {"key": ("id",)},
        {"latest_by": "at"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"upsert"):
        DatabaseSettings(url="shop.db", table="t", **settings)  # type: ignore[arg-type]


def test_staging_tables_of_two_sinks_differ_and_are_short_enough() -> None:
    keys = ("shop/Orders", "shop/orders", "shop" * 40 + "/a", "shop" * 40 + "/b")
    assert len({staging_prefix(key) for key in keys}) == 4
    assert all(new_staging(key).name.startswith(staging_prefix(key)) for key in keys)
    assert max(len(new_staging(key).name) for key in keys) <= 63


def test_each_write_has_a_staging_table_of_its_own() -> None:
    assert new_staging("shop/orders") != new_staging("shop/orders")


def test_a_table_may_be_in_a_schema() -> None:
    assert TableName.parse("sales.orders") == TableName("sales", "orders")
    assert str(TableName.parse("orders")) == "orders"
