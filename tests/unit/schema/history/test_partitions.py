"""Which rows DROP and TRUNCATE PARTITION remove, as far as the statements of the table tell."""

import contextlib
import itertools
import math
import sqlite3
from typing import Any

import pytest

from replicator.model.position import SourcePosition
from replicator.model.recorded import checked_sql
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import DATE, LONG, TIMESTAMP
from replicator.schema.ddl.effects import ColumnMoves, KeyChange, PartitionChange, PartitionLayout
from replicator.schema.ddl.partitions import partition_change
from replicator.schema.ddl.tables import column_moves, parse
from replicator.schema.history.builder import build_history
from replicator.schema.history.partitions import partition_condition
from replicator.schema.history.versions import SchemaHistory, TableDefinition

T = TableId("shop", "t")
LESS = "PARTITION {} VALUES LESS THAN ({})"
RANGE = "PARTITION BY RANGE (a) (" + ", ".join(LESS.format(f"p{i}", 10 * (i + 1)) for i in range(4)) + ")"


def change(ddl: str) -> PartitionChange | None:
    return partition_change(parse(ddl), T)


def created(clause: str) -> PartitionLayout | None:
    found = change(f"CREATE TABLE `t` (`a` int, `b` int) ENGINE=InnoDB {clause}")
    assert found is not None
    return found.layout


def folded(clause: str, *alterations: str) -> PartitionLayout | None:
    layout = created(clause)
    for text in alterations:
        found = change(f"ALTER TABLE t {text}")
        layout = layout if found is None else found.after(layout)
    return layout


def condition(layout: PartitionLayout | None, operation: str) -> str | None:
    """Return the condition for the rows that an operation removes; None if they are unknown."""
    found = change(f"ALTER TABLE shop.`t` {operation}")
    if layout is None or found is None or (spans := found.removed(layout)) is None:
        return None
    known = partition_condition(layout, spans, TableSchema((Column("a", LONG),), ("a",)), {"a": "BIGINT"})
    assert known is not None
    return checked_sql(known.rows.where, 1)


class Oracle:
    """Assigns rows to partitions in the way of MySQL: the first partition with a bound above the row."""

    def __init__(self, **partitions: float) -> None:
        self.partitions = partitions

    def place(self, value: int | None) -> str | None:
        key = -math.inf if value is None else value
        return next((name for name, bound in self.partitions.items() if key < bound), None)


NUMBERS = [None, *range(-3, 45)]


def matching(where: str | None) -> set[int | None]:
    """Return the numbers for which another engine than Spark finds a condition true; it is true or false for all."""
    assert where is not None
    found = dict[int | None, int]()
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        for number in NUMBERS:
            text = f"SELECT {where.format('a')} FROM (SELECT ? AS a)"
            (found[number],) = database.execute(text, (number,)).fetchone()
    assert set(found.values()) <= {0, 1}
    return {number for number, result in found.items() if result}


CASES = [
    ([], Oracle(p0=10, p1=20, p2=30, p3=40)),
    (["DROP PARTITION p1"], Oracle(p0=10, p2=30, p3=40)),
    (["DROP PARTITION p0, P2"], Oracle(p1=20, p3=40)),
    (
        ["ADD PARTITION (PARTITION p4 VALUES LESS THAN MAXVALUE)", "TRUNCATE PARTITION p1"],
        Oracle(p0=10, p1=20, p2=30, p3=40, p4=math.inf),
    ),
    (
        [
            "REORGANIZE PARTITION p1,p2 INTO (PARTITION `x y` VALUES LESS THAN (15), PARTITION z VALUES LESS THAN (30))"
        ],
        Oracle(**{"p0": 10, "x y": 15, "z": 30, "p3": 40}),
    ),
]


@pytest.mark.parametrize(("alterations", "oracle"), CASES)
def test_condition_is_true_for_the_rows_that_the_source_has_in_the_partitions(
    alterations: list[str], oracle: Oracle
) -> None:
    layout, names = folded(RANGE, *alterations), list(oracle.partitions)
    assert layout is not None
    assert [name for name, _ in layout.partitions] == names
    for count in (1, 2):
        for chosen in itertools.combinations(names, count):
            quoted = ", ".join(f"`{name.upper()}`" for name in chosen)
            for verb in ("DROP", "TRUNCATE"):
                where = condition(layout, f"{verb} PARTITION {quoted}")
                assert matching(where) == {n for n in NUMBERS if oracle.place(n) in chosen}
    where = condition(layout, "TRUNCATE PARTITION ALL")
    assert matching(where) == {n for n in NUMBERS if oracle.place(n) is not None}


@pytest.mark.parametrize(
    "clause",
    [
        "",
        "PARTITION BY HASH (a) PARTITIONS 4",
        "PARTITION BY KEY (a)",
        "PARTITION BY RANGE (YEAR(a)) (PARTITION p0 VALUES LESS THAN (2000))",
        "PARTITION BY RANGE (TO_DAYS(a)) (PARTITION p0 VALUES LESS THAN (TO_DAYS('2024-01-01')))",
        "PARTITION BY RANGE (a + 1) (PARTITION p0 VALUES LESS THAN (10))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (5 + 5))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (1.5))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (0x10))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION P0 VALUES LESS THAN (20))",
        "PARTITION BY RANGE COLUMNS (a, b) (PARTITION p0 VALUES LESS THAN (10, 5))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10, 5))",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN ())",
        "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN",
        "PARTITION BY LIST (a) (PARTITION p0 VALUES IN (1, 2))",
        "PARTITION BY RANGE COLUMNS (a) (PARTITION p0 VALUES LESS THAN (_latin1'x'))",
        "PARTITION BY RANGE COLUMNS (a) (PARTITION p0 VALUES LESS THAN ('it''s'))",
        "PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION p1 CURRENT)",
        "PARTITION BY RANGE (a)",
    ],
)
def test_other_definitions_are_unknown(clause: str) -> None:
    assert created(clause) is None


def test_definition_is_read_as_the_source_shows_it() -> None:
    text = """/*!50500 PARTITION BY RANGE  COLUMNS(`A`)
SUBPARTITION BY HASH (`b`)
SUBPARTITIONS 2
(PARTITION p0 VALUES LESS THAN ('2024-01-01')
 (SUBPARTITION s0 ENGINE = InnoDB,
  SUBPARTITION s1 COMMENT = 'PARTITION p9' ENGINE = InnoDB),
 PARTITION pmax VALUES LESS THAN (MAXVALUE) COMMENT = ',' ENGINE = InnoDB) */"""
    layout = created(text)
    assert layout is not None
    assert layout == PartitionLayout("a", (("p0", "2024-01-01"), ("pmax", None)))
    assert condition(layout, "TRUNCATE PARTITION s0") is None


@pytest.mark.parametrize(
    ("operation", "known"),
    [
        ("EXCHANGE PARTITION p0 WITH TABLE u", True),
        ("EXCHANGE PARTITION p0 WITH TABLE u WITH VALIDATION", True),
        ("EXCHANGE PARTITION p0 WITH TABLE u WITHOUT VALIDATION", False),
        ("IMPORT PARTITION p0 TABLESPACE", False),
        ("IMPORT TABLESPACE", False),
        ("DISCARD PARTITION p0 TABLESPACE", True),
        ("REBUILD PARTITION p0, p1", True),
        ("OPTIMIZE PARTITION ALL", True),
        ("ADD COLUMN c INT, ENGINE = InnoDB", True),
        ("DROP COLUMN `partition`", True),
        ("REMOVE PARTITIONING", False),
        ("ENGINE = InnoDB REMOVE PARTITIONING", False),
        ("ENGINE = InnoDB PARTITION BY HASH (a)", False),
        ("ENGINE = InnoDB " + RANGE, True),
        ("ADD PARTITION PARTITIONS 4", False),
        ("ADD PARTITION (PARTITION p9 VALUES IN (1))", False),
        ("ADD PARTITION (PARTITION p0 VALUES LESS THAN (90))", False),
        ("DROP PARTITION p9", False),
        ("DROP PARTITION IF EXISTS p0", False),
        ("REORGANIZE PARTITION p0, p9 INTO (PARTITION x VALUES LESS THAN (30))", False),
        ("REORGANIZE PARTITION", False),
        ("ADD COLUMN c INT, DROP PARTITION p0", False),
        ("FROBNICATE PARTITION p0", False),
    ],
)
def test_statement_that_is_not_understood_makes_the_layout_unknown(operation: str, known: bool) -> None:
    assert (folded(RANGE, operation) is not None) == known


@pytest.mark.parametrize(
    ("kind", "lake", "literal", "where"),
    [
        ("DATE", DATE, "'2024-02-29'", "{0} IS NULL OR {0} < DATE'2024-02-29'"),
        ("DATETIME(6)", TIMESTAMP, "'2024-01-01'", "{0} IS NULL OR {0} < TIMESTAMP_NTZ'2024-01-01 00:00:00'"),
        ("BIGINT UNSIGNED", LONG, str(2**64 - 1), f"{{0}} IS NULL OR {{0}} < {2**64 - 1}"),
        ("DATE", DATE, "'2024-1-1'", None),
        ("DATE", DATE, "'0000-00-00'", None),
        ("DATE", DATE, "20240101", None),
        ("DATETIME", TIMESTAMP, "'2024-01-01 00:00:00.5'", None),
        ("INT", LONG, "'5'", None),
        ("VARCHAR(10)", LONG, "'a'", None),
        ("YEAR", LONG, "2024", None),
        ("TIMESTAMP", LONG, "5", None),
        ("BIT(5)", LONG, "5", None),
    ],
)
def test_only_values_whose_order_is_certain_are_compared(
    kind: str, lake: Any, literal: str, where: str | None
) -> None:
    layout = created(f"PARTITION BY RANGE COLUMNS (a) (PARTITION p0 VALUES LESS THAN ({literal}))")
    assert layout is not None
    found = partition_condition(
        layout, layout.spans(()) or [], TableSchema((Column("A", lake),), ()), {"A": kind}
    )
    assert (None if found is None else found.rows.where) == (None if where is None else f"({where})")
    if found is not None:
        assert (found.uncertain is not None) == kind.startswith("DATE")
        assert ("decimal" in found.lake_types) == ("BIGINT" in kind)
        assert "string" not in found.lake_types


def history(*statements: str, snapshot: bool = False) -> SchemaHistory:
    """Return the history of a table with column a, whose statements follow each other."""
    definitions, a = [], "a"
    for number, text in enumerate(statements, start=1):
        parsed = parse(text)
        moves = column_moves(parsed, T) or ColumnMoves()
        a = dict(moves.renamed).get(a, a)
        definitions.append(
            TableDefinition(
                T,
                SourcePosition("binlog.000001", 100 * number),
                0,
                TableSchema((Column(a, LONG), Column("c", LONG)), (a,)),
                moves,
                {a: "BIGINT", "c": "BIGINT"},
                snapshot=snapshot,
                key_change=KeyChange(created=text.startswith("CREATE")),
                unlogged=text if "DROP PARTITION" in text else None,
                partitions=partition_change(parsed, T),
            )
        )
    return build_history(definitions)


CREATE = f"CREATE TABLE t (a BIGINT, c BIGINT) {RANGE}"


def test_history_knows_the_removed_rows_of_each_statement() -> None:
    found = history(
        CREATE,
        "ALTER TABLE t DROP PARTITION p1",
        "ALTER TABLE t ADD PARTITION (PARTITION p4 VALUES LESS THAN (50))",
        "ALTER TABLE t DROP PARTITION p2, p4",
        "ALTER TABLE t DROP PARTITION p1",
    )
    conditions = [v.removed for v in found.versions]
    assert [c and c.column for c in conditions] == [None, "a", "a", None]
    assert conditions[2] is not None
    assert matching(conditions[2].rows.where) == {*range(10, 30), *range(40, 45)}
    assert found.partitions is None


@pytest.mark.parametrize(
    "statements",
    [
        (CREATE, "ALTER TABLE t PARTITION BY HASH (a)"),
        ("CREATE TABLE t LIKE u",),
        (CREATE, "CREATE TABLE IF NOT EXISTS t (a BIGINT, c BIGINT) " + RANGE),
        (CREATE, "ALTER TABLE t DROP COLUMN a"),
        (CREATE, "ALTER TABLE t RENAME COLUMN a TO b"),
        # The definition is one of the new column, which the history does not have here.
        (CREATE, f"ALTER TABLE t RENAME COLUMN a TO b, ADD COLUMN a BIGINT {RANGE}"),
        (CREATE, "CREATE TABLE t (a BIGINT, c BIGINT)"),
    ],
)
def test_rows_are_unknown_without_a_definition(statements: tuple[str, ...]) -> None:
    found = history(*statements, "ALTER TABLE t DROP PARTITION p1")
    assert found.versions[-1].unlogged is not None
    assert found.versions[-1].removed is None


def test_generated_columns_are_not_compared() -> None:
    found = history(CREATE, "ALTER TABLE t DROP PARTITION p1")
    assert found.versions[-1].removed is not None
    definition = TableDefinition(
        T,
        SourcePosition("binlog.000001", 100),
        0,
        TableSchema((Column("a", LONG),), ()),
        source_types={"a": "BIGINT"},
        key_change=KeyChange(created=True),
        generated={"a": True},
        partitions=change(CREATE),
    )
    statement = "ALTER TABLE t DROP PARTITION p1"
    later = TableDefinition(
        T,
        SourcePosition("binlog.000001", 200),
        0,
        None,
        unlogged=statement,
        partitions=change(statement),
        only_statement=True,
    )
    assert build_history([definition, later]).versions[-1].removed is None
