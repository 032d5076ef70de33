"""Which columns identify the rows of a table after its keys changed, as Debezium's definitions do not tell."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from replicator.decode.schemas.histories import SchemaHistories
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from replicator.schema.history.declared import table_definitions
from tests.oracle.events import ColumnSpec, Place, schema_change_event, statement_event

T = TableId("shop", "t")
A, B = ColumnSpec("a", "int", False), ColumnSpec("b", "int", False)
KEYED_BY_A = (
    "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY uk (a), UNIQUE KEY other (b), KEY plain (b))"
)


@dataclass
class Source:
    """Statements of tables, as Debezium 3.6 writes them to the schema-change topic."""

    histories: SchemaHistories = field(default_factory=SchemaHistories)
    pos: int = 0

    def define(
        self,
        ddl: str,
        key: Sequence[str] = ("a",),
        *,
        kind: str = "ALTER",
        columns: Sequence[ColumnSpec] = (A, B),
        table: str = "t",
        times: int = 1,
    ) -> None:
        """Apply a statement with a definition of its table, whose key Debezium considers to be `key`."""
        self.pos += 10
        self._apply(schema_change_event(Place(1, self.pos), table, columns, key, kind=kind, ddl=ddl), times)

    def execute(self, ddl: str, times: int = 1) -> None:
        """Apply a statement for which Debezium writes no definition."""
        self.pos += 10
        self._apply(statement_event(Place(1, self.pos), "t", ddl), times)

    def _apply(self, record: bytes, times: int) -> None:
        for _ in range(times):
            self.histories.apply(table_definitions(record))

    def keys(self, table: str = "t") -> list[tuple[str, ...]]:
        return [v.schema.key for v in self.histories.history(TableId("shop", table)).versions]


@pytest.fixture
def source() -> Source:
    made = Source()
    made.define(KEYED_BY_A, kind="CREATE")
    return made


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t DROP INDEX uk",
        "ALTER TABLE t DROP KEY UK, ADD UNIQUE uk2 (b)",
        "ALTER TABLE t ADD UNIQUE uk (b), DROP KEY uk",
        "ALTER TABLE t DROP CONSTRAINT uk",
    ],
)
def test_key_is_lost_when_its_unique_key_is_dropped(source: Source, ddl: str) -> None:
    source.define(ddl, times=2)
    source.define("ALTER TABLE t COMMENT 'x'")
    assert source.keys() == [("a",), ()]
    version = source.histories.history(T).versions[-1]
    assert (version.weak_key, version.event_key, version.key(("a",))) == (True, ("a",), ())


def test_key_is_lost_when_a_statement_without_definition_drops_it(source: Source) -> None:
    source.execute("DROP INDEX plain ON t")
    source.execute("CREATE INDEX more ON t (a)")
    assert source.keys() == [("a",)]
    source.execute("DROP INDEX `uk` ON `t`", times=2)
    assert source.keys() == [("a",), ()]
    assert [v.position.pos for v in source.histories.history(T).versions] == [10, 40]
    source.define("ALTER TABLE t ADD c INT", columns=(A, B, ColumnSpec("c", "int")))
    assert source.keys() == [("a",), (), ()]


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t DROP INDEX plain, DROP KEY other",
        "ALTER TABLE t DROP INDEX uk, ADD UNIQUE anew (a)",
        "ALTER TABLE t DROP INDEX uk, ADD PRIMARY KEY (a)",
        "ALTER TABLE t RENAME INDEX uk TO uk7",
    ],
)
def test_key_stays_while_another_or_the_renamed_key_has_its_columns(source: Source, ddl: str) -> None:
    source.define(ddl)
    source.define("ALTER TABLE t COMMENT 'x'")
    assert source.keys() == [("a",)]


def replaced(column: ColumnSpec, name: str, *, optional: bool = False) -> ColumnSpec:
    return ColumnSpec(name, column.kind, optional)


def test_key_is_lost_when_its_column_may_be_null(source: Source) -> None:
    source.define("ALTER TABLE t MODIFY a INT NULL", columns=(replaced(A, "a", optional=True), B))
    assert source.keys() == [("a",), ()]
    source.define("ALTER TABLE t MODIFY a INT NOT NULL")
    assert source.keys() == [("a",), (), ("a",)]


def test_key_is_found_again_when_it_is_defined_again(source: Source) -> None:
    source.define("ALTER TABLE t DROP INDEX uk")
    source.define("UNIQUE INDEX uk3 ON t (a)")
    assert source.keys() == [("a",), (), ("a",)]
    # The first statement is sent again, as after a restart of the connector.
    source.define("ALTER TABLE t DROP INDEX uk3", times=2)
    assert source.keys() == [("a",), (), ("a",), ()]


def test_dropped_primary_key_is_not_that_of_events(source: Source) -> None:
    """Debezium has no key for the table then, whatever unique keys it has."""
    source.define("ALTER TABLE t ADD PRIMARY KEY (b)", ["b"])
    source.define("ALTER TABLE t DROP PRIMARY KEY", [])
    assert source.keys() == [("a",), ("b",), ()]
    assert source.histories.history(T).versions[-1].key(("b",)) == ()


@pytest.mark.parametrize(
    ("unnamed", "dropped"),
    [("UNIQUE (a)", "a"), ("KEY (a), UNIQUE (a)", "a_2"), ("KEY a_2 (b), KEY (a), UNIQUE (a)", "a_3")],
)
def test_unnamed_keys_have_the_names_that_the_server_gives_them(unnamed: str, dropped: str) -> None:
    source = Source()
    source.define(f"CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, {unnamed})", kind="CREATE")
    source.define(f"ALTER TABLE t DROP INDEX {dropped}")
    assert source.keys() == [("a",), ()]


def test_any_dropped_index_may_be_the_key_when_no_statement_told_the_keys() -> None:
    source = Source()
    source.define("ALTER TABLE t ADD c INT")
    source.define("ALTER TABLE t ADD INDEX i (b)")
    assert source.keys() == [("a",)]
    source.define("ALTER TABLE t DROP INDEX i")
    assert source.keys() == [("a",)]
    source.define("ALTER TABLE t DROP INDEX j")
    assert source.keys() == [("a",), ()]


def test_observed_version_has_no_key_when_a_key_was_dropped() -> None:
    source = Source()
    source.execute("DROP INDEX uk ON t")
    assert not source.histories.is_defined(T)
    schema = TableSchema((Column("a", LONG, nullable=False),), ("a",))
    source.histories.observe(T, SourcePosition("mysql-bin.000001", 500), 0, schema)
    assert source.keys() == [()]


def test_copied_table_has_the_keys_of_the_other_one(source: Source) -> None:
    source.define("CREATE TABLE copy LIKE t", kind="CREATE", table="copy")
    source.execute("DROP INDEX plain ON copy")
    assert source.keys("copy") == [("a",)]
    source.execute("DROP INDEX uk ON copy")
    assert source.keys("copy") == [("a",), ()]
    assert source.keys() == [("a",)]


def test_table_has_the_keys_of_the_copy_that_replaced_it(source: Source) -> None:
    source.define("CREATE TABLE _t_gho LIKE t", kind="CREATE", table="_t_gho")
    source.define("ALTER TABLE _t_gho DROP INDEX uk", table="_t_gho")
    source.define("RENAME TABLE t TO _t_del, _t_gho TO t", table="_t_del")
    source.pos -= 10
    source.define("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert source.keys()[-1] == ()
    assert source.keys("_t_del")[-1] == ("a",)
