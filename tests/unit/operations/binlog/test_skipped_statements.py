"""Statements that Debezium skips in an import."""

import json

import pytest

from replicator.errors import BinlogError
from replicator.model.table import TableId
from replicator.operations.binlog.checks import SkippedStatements
from replicator.sources.archive.format import Event


def check(ddl: str, changes: list[object] | None = None, topic: str = "shop") -> None:
    value = json.dumps({"ddl": ddl, "tableChanges": changes or []}).encode()
    SkippedStatements("shop", [TableId("shop", "links"), TableId("shop", "a")]).check(
        Event(topic, 0, 0, 0, None, value, ())
    )


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE links (id INT PRIMARY KEY, url VARCHAR(300))",
        "/* x */ CREATE TABLE IF NOT EXISTS 'links' (id INT)",
        'ALTER TABLE "links" ADD url INT',
        "RENAME TABLE b TO shop.LINKS",
        "CREATE UNIQUE INDEX i ON links (id)",
    ],
)
def test_statement_without_a_definition_that_may_define_a_table_is_refused(ddl: str) -> None:
    with pytest.raises(BinlogError, match="cannot parse a statement that may define the table"):
        check(ddl)


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE other.pages (id INT PRIMARY KEY, url VARCHAR(300))",
        "CREATE TABLE linkss (id INT)",
        "CREATE TEMPORARY TABLE links (id INT)",
        "CREATE VIEW v AS SELECT * FROM links",
        "GRANT SELECT ON links TO x",
    ],
)
def test_other_statements_may_be_skipped(ddl: str) -> None:
    check(ddl)
