"""Looks at rows of a real Iceberg table that changed recently, with a source in memory."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from replicator.errors import SourceError
from replicator.model.table import SOURCE_KEY, TableId
from replicator.verify.compared_table import ComparedTable
from replicator.verify.interruption import Interruption
from replicator.verify.lake_rows import Row
from replicator.verify.recent_rows import Look, RecentRows
from tests.support.config import minimal_config
from tests.support.verified_tables import described

T = TableId("shop", "t")
TABLE = described(
    {
        "id": {"kind": "bigint", "nullable": "NO"},
        "note": {"kind": "varchar", "charset": "utf8mb4", "size": 10},
    },
    ("id",),
)
COLUMNS = (NestedField(1, "id", LongType(), True), NestedField(2, "note", StringType(), False))


class Setting:
    """A mirror, and the rows of its source."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("shop")
        config = minimal_config()
        schema = Schema(*COLUMNS, identifier_field_ids=[1])
        self.catalog.create_table("shop.t", schema, properties={SOURCE_KEY: "shop.t"})
        self.rows = RecentRows(config)
        self.source: dict[int, str] = {}
        self.asked: list[int] = []
        self.fails = False

    @property
    def mirror(self) -> Table:
        return self.catalog.load_table("shop.t")

    def write(self, **rows: str) -> None:
        """Add rows, whose keys are behind a letter, to the mirror."""
        values = [{"id": int(name[1:]), "note": note} for name, note in rows.items()]
        self.mirror.append(pa.Table.from_pylist(values, self.mirror.schema().as_arrow()))

    def rows_with(self, keys: Sequence[Row]) -> Iterator[Row]:
        if self.fails:
            raise SourceError("its definition changed")
        wanted = [int(key[0] or 0) for key in keys]
        self.asked += wanted
        for key in wanted:
            if key in self.source:
                yield (str(key).encode(), self.source[key].encode())

    def look(self, *tables: TableId, rows: int = 100, table: ComparedTable = TABLE) -> Look:
        self.asked = []
        with (
            patch("replicator.verify.recent_rows.open_snapshot", return_value=nullcontext()),
            patch("replicator.verify.recent_rows.compared_table", return_value=table),
            patch("replicator.verify.source_side.SourceSide.rows_with", lambda _, keys: self.rows_with(keys)),
        ):
            return self.rows.look(self.catalog, tables, rows, Interruption())


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def keys_of(look: Look) -> list[int]:
    return [] if T not in look.suspected else sorted(look.suspected[T].column("id").to_pylist())


def test_only_rows_of_new_files_are_compared(setting: Setting) -> None:
    setting.write(k1="a", k2="b")
    setting.source = {1: "a", 2: "b"}
    # At the first look, all files are new.
    assert setting.look(T) == Look({T: 2}, {}, has_open=False)
    setting.write(k3="c", k4="d")
    setting.source = {3: "c", 4: "d"}
    assert setting.look(T) == Look({T: 2}, {}, has_open=False)
    assert sorted(setting.asked) == [3, 4]
    assert setting.look(T) == Look({}, {}, has_open=False)


def test_a_row_that_is_never_equal_is_suspected(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a", k2="b")
    setting.source = {1: "a", 2: "other"}
    looks = [setting.look(T), setting.look(), setting.look()]
    assert [look.has_open for look in looks] == [True, True, False]
    assert [keys_of(look) for look in looks] == [[], [], [2]]
    # The table may have other rows that are wrong; those that are known are not looked at again.
    assert setting.look() == Look({}, {}, has_open=False)


def test_a_row_that_the_source_lacks_is_suspected(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a")
    assert [keys_of(setting.look(T)) for _ in range(3)] == [[], [], [1]]


def test_a_row_that_changed_meanwhile_is_compared_as_the_mirror_has_it_then(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a", k2="b")
    setting.source = {1: "a", 2: "newer"}
    assert setting.look(T).has_open
    setting.mirror.delete("id = 2")
    setting.write(k2="newer")
    assert not setting.look(T).has_open


def test_a_row_that_was_suspected_and_is_right_is_left_out(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a")
    found = [setting.look(T) for _ in range(3)][-1]
    setting.rows.clear(T, found.suspected[T])
    setting.mirror.delete("id = 1")
    setting.write(k1="b", k2="c")
    setting.source = {2: "c"}
    assert setting.look(T) == Look({T: 1}, {}, has_open=False)


def test_a_table_that_cannot_be_compared_is_left_out(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a")
    setting.fails = True
    assert setting.look(T) == Look({T: 0}, {}, has_open=False)
    assert setting.look(TableId("shop", "missing")) == Look({}, {}, has_open=False)


def test_a_table_whose_key_cannot_be_asked_for_is_left_out(setting: Setting) -> None:
    setting.look(T)
    setting.write(k1="a")
    keyless = described(
        {"id": {"kind": "bigint"}, "note": {"kind": "varchar", "charset": "utf8mb4", "size": 9}}
    )
    assert setting.look(T, table=keyless).compared == {T: 0}
