"""Tables that replace another one: copies that tools made have its rows, all others have their own."""

from collections.abc import Sequence

import pytest

from replicator.decode.schemas.histories import SchemaHistories
from replicator.model.table import TableId
from replicator.schema.ddl.records import is_copy_of
from replicator.schema.history.declared import table_definitions
from replicator.schema.history.versions import SchemaVersion
from tests.oracle.events import ColumnSpec, Place, schema_change_event

T = TableId("shop", "t")
COLUMNS = (ColumnSpec("id", "int", False),)
LONG = "t" * 63
TAKEN_OVER = "RENAME TABLE `staging` TO `t`"


Step = tuple[str, Sequence[ColumnSpec]]
"""What a statement changes, and the columns of the table after it."""


class Source:
    """The tables `t` and `staging`, which are renamed."""

    def __init__(self) -> None:
        self.histories = SchemaHistories()
        self.pos = 0
        for table in ("t", "staging"):
            self.define(table, "CREATE TABLE …", kind="CREATE")

    def define(
        self,
        table: str,
        ddl: str,
        *,
        kind: str = "ALTER",
        columns: Sequence[ColumnSpec] = COLUMNS,
        pos: int | None = None,
    ) -> None:
        self.pos = self.pos + 10 if pos is None else pos
        record = schema_change_event(Place(1, self.pos), table, columns, ["id"], kind=kind, ddl=ddl)
        for _ in range(2):
            self.histories.apply(table_definitions(record))

    def rename(self, *pairs: tuple[str, str], columns: Sequence[ColumnSpec] = COLUMNS) -> None:
        """Rename tables in turn, in one statement."""
        self.pos += 10
        ddl = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)
        for _, new in pairs:
            self.define(new, ddl, columns=columns, pos=self.pos)

    def alter_by_copy(self, *steps: Step, before: Sequence[ColumnSpec] = COLUMNS) -> SchemaVersion:
        """Alter the table `t` as gh-ost does, and return its new version."""
        self.define("_t_gho", "CREATE TABLE _t_gho LIKE t", kind="CREATE", columns=before)
        for change, columns in steps:
            self.define("_t_gho", f"ALTER TABLE _t_gho {change}", columns=columns)
        self.rename(("t", "_t_del"), ("_t_gho", "t"), columns=steps[-1][1])
        self.define("_t_del", "DROP TABLE _t_del", kind="DROP")
        return self.histories.history(T).versions[-1]

    def unlogged(self) -> list[str | None]:
        return [v.unlogged for v in self.histories.history(T).versions]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.mark.parametrize(
    ("other", "table", "expected"),
    [
        ("_t_gho", "t", True),
        ("_t_new", "t", True),
        ("_T_new", "t", True),
        ("____t_new", "t", True),
        ("___t_gho", "__t", True),
        (f"_{LONG[:59]}_gho", LONG, True),
        (f"_{LONG[:50]}_gho", LONG, False),
        ("_t_del", "t", False),
        ("_t_old", "t", False),
        ("_t_ghc", "t", False),
        ("_u_gho", "t", False),
        ("_tt_new", "t", False),
        ("t_new", "t", False),
        ("__new", "t", False),
        ("_new", "t", False),
        ("_gho", "gho", False),
    ],
)
def test_copy_is_recognized_by_its_name(other: str, table: str, expected: bool) -> None:
    assert is_copy_of(TableId("shop", other), TableId("shop", table)) is expected
    assert not is_copy_of(TableId("elsewhere", other), TableId("shop", table))


def test_table_that_takes_over_a_name_has_other_rows(source: Source) -> None:
    source.rename(("t", "t_old"), ("staging", "t"))
    assert source.unlogged() == [None, TAKEN_OVER]
    assert source.histories.history(T).is_barrier(1, 0)


def test_table_that_exchanges_names_with_another_one_has_other_rows(source: Source) -> None:
    source.rename(("t", "tmp"), ("staging", "t"), ("tmp", "staging"))
    assert source.histories.history(T).versions[-1].unlogged == TAKEN_OVER


@pytest.mark.parametrize("dropped", [True, False])
def test_copy_that_a_tool_made_has_the_same_rows(source: Source, dropped: bool) -> None:
    source.define("_t_gho", "CREATE TABLE _t_gho LIKE t", kind="CREATE")
    if dropped:
        source.define("t", "DROP TABLE t", kind="DROP")
        source.rename(("_t_gho", "t"))
    else:
        source.rename(("t", "_t_del"), ("_t_gho", "t"))
    assert source.unlogged() == [None, None]


def test_table_has_its_rows_after_a_failed_cutover(source: Source) -> None:
    """gh-ost gives the table its name back, and may have used the other name before."""
    source.alter_by_copy(("ADD x INT", WITH_X))
    source.rename(("t", "_t_del"), columns=WITH_X)
    source.rename(("_t_del", "t"), columns=WITH_X)
    assert source.unlogged() == [None] * 3


@pytest.mark.parametrize("renamed", [True, False])
def test_table_that_replaces_a_later_one_of_its_name_has_other_rows(source: Source, renamed: bool) -> None:
    source.rename(("t", "away"))
    source.define("t", "CREATE TABLE t …", kind="CREATE")
    if renamed:
        source.rename(("t", "t_old"))
    else:
        source.define("t", "DROP TABLE t", kind="DROP")
    source.rename(("away", "t"))
    assert source.unlogged()[-1] == "RENAME TABLE `away` TO `t`"


X, Y = ColumnSpec("x", "int", False), ColumnSpec("y", "int", False)
WITH_X, WITH_Y = (*COLUMNS, X), (*COLUMNS, Y)


@pytest.mark.parametrize(
    ("steps", "generated"),
    [
        ([("ADD x INT NOT NULL DEFAULT (RAND())", WITH_X)], False),
        ([("ADD x INT AS (id * 2) STORED NOT NULL", WITH_X)], True),
        ([("ADD x INT AS (id * 2) STORED NOT NULL", WITH_X), ("COMMENT 'later'", WITH_X)], True),
        ([("ADD y INT AS (id * 2) STORED NOT NULL", WITH_Y), ("RENAME COLUMN y TO x", WITH_X)], True),
    ],
)
def test_column_that_a_copy_computes_is_unknown_in_existing_rows(
    source: Source, steps: Sequence[Step], generated: bool
) -> None:
    version = source.alter_by_copy(*steps)
    found = version.schema.column("x")
    assert found is not None
    assert (found.fill, found.fill_unknown) == (None, True)
    assert ("x" in version.generated, version.unlogged) == (generated, None)


def test_new_expression_in_a_copy_changes_rows_without_events(source: Source) -> None:
    first = source.alter_by_copy(("ADD x INT AS (id * 2) STORED NOT NULL", WITH_X))
    assert first.generated == {"x"}
    change = "MODIFY x INT AS (id * 3) STORED NOT NULL"
    second = source.alter_by_copy((change, WITH_X), before=WITH_X)
    assert (second.unlogged, set(second.generated)) == (
        "ALTER TABLE _t_gho MODIFY x INT AS (id * 3) STORED NOT NULL",
        {"x"},
    )
    # The third copy has the name of the second one, but neither its statement nor its columns.
    third = source.alter_by_copy(("COMMENT 'later'", WITH_X), before=WITH_X)
    assert (third.unlogged, set(third.generated)) == (None, {"x"})
