"""Tables that replace another one: copies that tools made have its rows, all others have their own."""

import pytest

from replicator.decode.schema_histories import SchemaHistories
from replicator.model.table import TableId
from replicator.schema.table_changes import table_definitions
from replicator.schema.table_copies import is_copy_of
from tests.oracle.events import ColumnSpec, Place, schema_change_event

T = TableId("shop", "t")
COLUMNS = (ColumnSpec("id", "int", False),)
LONG = "t" * 63
TAKEN_OVER = "RENAME TABLE `staging` TO `t`"


class Source:
    """The tables `t` and `staging`, which are renamed."""

    def __init__(self) -> None:
        self.histories = SchemaHistories()
        self.pos = 0
        for table in ("t", "staging"):
            self.define(table, "CREATE TABLE …", kind="CREATE")

    def define(
        self, table: str, ddl: str, *, kind: str = "ALTER", old: str | None = None, pos: int | None = None
    ) -> None:
        self.pos = self.pos + 10 if pos is None else pos
        record = schema_change_event(
            Place(1, self.pos), table, COLUMNS, ["id"], kind=kind, ddl=ddl, old_name=old
        )
        for _ in range(2):
            self.histories.apply(table_definitions(record))

    def rename(self, *pairs: tuple[str, str]) -> None:
        """Rename tables in turn, in one statement."""
        self.pos += 10
        ddl = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)
        for _, new in pairs:
            self.define(new, ddl, pos=self.pos)

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


def test_table_that_takes_over_the_name_of_a_dropped_one_has_other_rows(source: Source) -> None:
    source.define("t", "DROP TABLE t", kind="DROP")
    source.rename(("staging", "t"))
    assert source.unlogged() == [None, TAKEN_OVER]


def test_table_that_exchanges_names_with_another_one_has_other_rows(source: Source) -> None:
    source.rename(("t", "tmp"), ("staging", "t"), ("tmp", "staging"))
    version = source.histories.history(T).versions[-1]
    assert (version.unlogged, version.exchanged_with) == (TAKEN_OVER, TableId("shop", "staging"))


@pytest.mark.parametrize("dropped", [True, False])
def test_copy_that_a_tool_made_has_the_same_rows(source: Source, dropped: bool) -> None:
    source.define("_t_gho", "CREATE TABLE _t_gho LIKE t", kind="CREATE")
    if dropped:
        source.define("t", "DROP TABLE t", kind="DROP")
        source.rename(("_t_gho", "t"))
    else:
        source.rename(("t", "_t_del"), ("_t_gho", "t"))
    assert source.unlogged() == [None, None]


def test_table_that_gets_its_name_back_has_its_rows(source: Source) -> None:
    source.rename(("t", "away"))
    source.rename(("away", "t"))
    assert source.unlogged() == [None, None]


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
