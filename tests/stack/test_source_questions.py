"""What a real MySQL server answers to questions about its tables."""

from pathlib import Path

import pytest

from replicator.config import load
from replicator.model.table import TableId
from replicator.schema.ddl.dml import changed_tables
from replicator.sources.binlog.deviations import DeviationKind
from replicator.sources.mysql.connection import StatementError, connect
from replicator.sources.mysql.definitions import read_definitions, source_definition
from replicator.sources.mysql.deviation_reader import DeviationReader
from replicator.sources.mysql.table_rows import describe
from replicator.sources.mysql.tables import (
    changed_in_source,
    ignores_case,
    included_tables,
    merge_tables,
    read_cascades,
)
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

PREPARE = [
    "CREATE TABLE orders (id INT PRIMARY KEY, `a:%s` VARCHAR(9) NOT NULL, UNIQUE KEY u (`a:%s`))",
    "CREATE TABLE `l%ines` (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
    "CREATE TABLE notes (n INT) ENGINE = MyISAM",
    "CREATE TABLE merged (n INT) ENGINE = MERGE UNION = (notes)",
    "CREATE VIEW few AS SELECT * FROM orders",
]


def test_each_question_is_answered(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(*PREPARE)
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    config = load(file)
    lines, merged, notes, orders = (
        TableId(source_database.name, name) for name in ("l%ines", "merged", "notes", "orders")
    )
    assert included_tables(config) == [lines, merged, notes, orders]
    assert merge_tables(config) == [merged]
    assert not ignores_case(config)
    found = source_definition(config.source, orders)
    assert found is not None
    assert ([c.name for c in found.columns], found.key) == (["id", "a:%s"], ("id",))
    assert source_definition(config.source, TableId(source_database.name, "none")) is None
    with connect(config.source) as connection:
        definitions = read_definitions(connection, {lines, orders})
        assert [len(definitions[table].columns) for table in (lines, orders)] == [2, 2]
        assert definitions[orders].unique == {frozenset({"id"}), frozenset({"a:%s"})}
        (cascade,) = (c for c in read_cascades(connection) if c.parent == orders)
        assert (cascade.child, cascade.on_delete, cascade.on_update) == (lines, True, False)
        changed = changed_tables(f"use `{source_database.name}`; DELETE FROM few")
        assert changed_in_source(connection, changed, [lines, notes, orders]) == [lines, orders]
        table = describe(connection, lines, ("id",))
        assert table is not None
        assert connection.first(table.last_query) is None
        with pytest.raises(StatementError) as caught:
            connection.rows("SELECT * FROM none_of_them")
        assert caught.value.code == 1146
        reader = DeviationReader()
        assert reader.read(connection) == ([], False)
        source_database.execute("SET SESSION binlog_format = STATEMENT", "INSERT INTO notes VALUES (1)")
        assert [deviation.kind for deviation in reader.read(connection)[0]] == [DeviationKind.STATEMENT]
