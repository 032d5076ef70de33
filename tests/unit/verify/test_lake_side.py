"""Rows of a real Iceberg table, and the later changes of a real changelog."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from replicator.errors import SchemaError
from replicator.model.binlog import BinlogEnd
from replicator.model.changelog import CHANGE_FIELDS
from replicator.model.gtid import GtidSet
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from replicator.verify.chunks import ChunkSums, KeyRange, RangeChunks
from replicator.verify.interruption import Interrupted, Interruption
from replicator.verify.lake_rows import Checksum
from replicator.verify.lake_side import LakeSide
from replicator.verify.later_changes import KeyStates, later_changes
from replicator.verify.results import Severity
from replicator.verify.schema_comparison import compare_schema
from replicator.verify.source_side import Fence
from tests.support.small_changelog import _CHANGE
from tests.support.verified_tables import checksum_of, described, rows_of

TABLE = described(
    {
        "id": {"kind": "bigint", "nullable": "NO"},
        "note": {"kind": "varchar", "charset": "utf8mb4", "size": 10},
    },
    ("id",),
)
COLUMNS = (NestedField(1, "id", LongType(), True), NestedField(2, "note", StringType(), False))
SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
END = BinlogEnd("b.000001", 200)
WITH_GTIDS = Fence(BinlogEnd("b.000001", 100, GtidSet.parse(f"{SOURCE}:1-5")), END, END, "9")
WITHOUT = Fence(BinlogEnd("b.000001", 100), END, END, "9")


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("shop")
    return made


def keyed(column: NestedField) -> Schema:
    return Schema(COLUMNS[0], column, identifier_field_ids=[1])


def mirror_of(catalog: SqlCatalog, *files: Sequence[tuple[int, str | None]]) -> Table:
    """Return a mirror with a file for each group of rows."""
    mirror = catalog.create_table("shop.t", Schema(*COLUMNS, identifier_field_ids=[1]))
    for rows in files:
        mirror.append(
            pa.Table.from_pylist([{"id": i, "note": n} for i, n in rows], mirror.schema().as_arrow())
        )
    return mirror


def test_checksums_and_rows_of_a_mirror(catalog: SqlCatalog) -> None:
    mirror = mirror_of(catalog, [(1, "a"), (5, None)], [(9, "c"), (12, "d")])
    lake = LakeSide(TABLE, mirror)
    chunks = RangeChunks(TABLE, (KeyRange(None, (5,)), KeyRange((5,), (9,)), KeyRange((9,), None)))
    sums = ChunkSums(3, distinct=True)
    assert lake.add_checksums(chunks, sums) == 4
    wanted: list[list[tuple[int, str | None]]] = [[(1, "a"), (5, None)], [(9, "c")], [(12, "d")]]
    for number, rows in enumerate(wanted):
        assert sums[number] == checksum_of(TABLE, rows_of(TABLE, rows))
    found = lake.rows_in(RangeChunks(TABLE, (KeyRange((5,), (9,)),)), KeyRange((5,), (9,)))
    assert found.to_pylist() == [{"id": 9, "note": "c"}]


def test_reading_ends_between_batches_once_the_check_must_end(catalog: SqlCatalog) -> None:
    interruption = Interruption()
    lake = LakeSide(TABLE, mirror_of(catalog, [(1, "a")]), interruption.go_on)
    chunks = RangeChunks(TABLE, (KeyRange(None, None),))
    assert lake.add_checksums(chunks, ChunkSums(1, distinct=True)) == 1
    interruption.set()
    with pytest.raises(Interrupted):
        lake.add_checksums(chunks, ChunkSums(1, distinct=True))


def test_a_mirror_without_rows_has_an_empty_checksum(catalog: SqlCatalog) -> None:
    lake, sums = LakeSide(TABLE, mirror_of(catalog)), ChunkSums(1, distinct=True)
    assert lake.add_checksums(RangeChunks(TABLE, (KeyRange(None, None),)), sums) == 0
    assert sums[0] == Checksum()


def test_a_column_of_another_type_cannot_be_compared(catalog: SqlCatalog) -> None:
    mirror = catalog.create_table("shop.t", keyed(NestedField(2, "note", LongType(), False)))
    mirror.append(pa.Table.from_pylist([{"id": 1, "note": 7}], mirror.schema().as_arrow()))
    with pytest.raises(SchemaError, match="note"):
        LakeSide(TABLE, mirror).add_checksums(
            RangeChunks(TABLE, (KeyRange(None, None),)), ChunkSums(1, distinct=True)
        )
    (finding,) = compare_schema(TABLE, mirror)
    assert (finding.severity, "note is varchar" in finding.text) == (Severity.DIFFERENT, True)


def test_a_key_of_another_type_cannot_be_compared(catalog: SqlCatalog) -> None:
    mirror = catalog.create_table("shop.t", Schema(NestedField(1, "id", StringType(), True), COLUMNS[1]))
    mirror.append(pa.Table.from_pylist([{"id": "x", "note": "a"}], mirror.schema().as_arrow()))
    with pytest.raises(SchemaError, match="no keys of type bigint"):
        LakeSide(TABLE, mirror).add_checksums(
            RangeChunks(TABLE, (KeyRange(None, None),)), ChunkSums(1, distinct=True)
        )


def test_columns_that_one_side_lacks_are_found(catalog: SqlCatalog) -> None:
    mirror = catalog.create_table("shop.t", keyed(NestedField(3, "more", LongType(), False)))
    found = {finding.text for finding in compare_schema(TABLE, mirror)}
    assert found == {
        "the mirror has no column note",
        "the mirror has a column more, which the source lacks",
    }


def test_column_that_others_added_is_only_a_note(catalog: SqlCatalog) -> None:
    schema = Schema(*COLUMNS, identifier_field_ids=[1])
    own = OwnColumns.of(schema.model_dump_json())
    mirror = catalog.create_table("shop.t", schema, properties={COLUMNS_KEY: own.to_json()})
    with mirror.update_schema() as update:
        update.add_column("mine", StringType())
    (finding,) = compare_schema(TABLE, mirror)
    assert (finding.severity, finding.text) == (Severity.NOTE, "others added the column mine to the mirror")


@pytest.mark.parametrize(
    ("identifiers", "text", "severity"), [([2], "note", Severity.DIFFERENT), ([], "no key", Severity.NOTE)]
)
def test_another_key_is_found(
    catalog: SqlCatalog, identifiers: list[int], text: str, severity: Severity
) -> None:
    columns = COLUMNS[0], NestedField(2, "note", StringType(), True)
    mirror = catalog.create_table("shop.t", Schema(*columns, identifier_field_ids=identifiers))
    (finding,) = compare_schema(TABLE, mirror)
    wanted = f"rows are identified by id in the source, and by {text} in the mirror"
    assert (finding.severity, finding.text) == (severity, wanted)
    keyless = described(
        {"id": {"kind": "bigint", "nullable": "NO"}, "note": {"kind": "varchar", "charset": "utf8mb4"}}
    )
    assert {f.severity for f in compare_schema(keyless, mirror)} == ({severity} if identifiers else set())


def changelog_of(catalog: SqlCatalog, *changes: tuple[int, str | None, str, str, int, str | None]) -> Table:
    """Return a changelog of (id, note, kind, op, pos, number of the transaction), with ascending offsets."""
    changelog = catalog.create_table(
        "shop.changes", Schema(*COLUMNS, NestedField(3, "_change", _CHANGE, False))
    )
    rows: list[dict[str, Any]] = []
    offset = 9
    for id_, note, kind, op, pos, number in changes:
        offset += kind != "UPDATE_AFTER"
        change = dict.fromkeys((name for name, _ in CHANGE_FIELDS), None) | {
            "kind": kind,
            "op": op,
            "file": "b.000001",
            "pos": pos,
            "gtid": None if number is None else f"{SOURCE}:{number}",
            "partition": 0,
            "offset": offset,
        }
        rows.append({"id": id_, "note": note, "_change": change})
    # Files are in no order.
    changelog = catalog.load_table("shop.changes")
    for row in reversed(rows):
        changelog.append(pa.Table.from_pylist([row], changelog.schema().as_arrow()))
    return changelog


def test_later_changes_by_gtid(catalog: SqlCatalog) -> None:
    changelog = changelog_of(
        catalog,
        (1, "seen", "INSERT", "c", 50, "5"),
        (1, "seen", "UPDATE_BEFORE", "u", 150, "6"),
        (1, "unsure", "UPDATE_AFTER", "u", 150, "6"),
        (1, "unsure", "DELETE", "d", 250, "7"),
        (2, "new", "INSERT", "c", 260, "8"),
        (3, "behind the mirror", "INSERT", "c", 270, "9"),
    )
    later = later_changes(TABLE, changelog, WITH_GTIDS, {0: 10}, {0: 14})
    assert later.images.column("note").to_pylist() == ["seen", "unsure", "unsure", "new"]
    assert later.after.tolist() == [False, True, False, True]
    assert later.unsure.tolist() == [True, True, False, False]
    first, new = (b"1", b"seen"), (b"2", b"new")
    assert later.states() == {
        (b"1",): KeyStates(first, None, frozenset({(b"1", b"unsure")})),
        (b"2",): KeyStates(None, new),
    }


def test_later_changes_by_position(catalog: SqlCatalog) -> None:
    changelog = changelog_of(
        catalog,
        (1, "a", "INSERT", "c", 99, None),
        (2, "b", "INSERT", "c", 100, None),
        (3, "c", "DELETE", "d", 199, None),
        (4, "d", "INSERT", "c", 200, None),
    )
    later = later_changes(TABLE, changelog, WITHOUT, {}, {0: 100})
    assert later.images.column("id").to_pylist() == [2, 3, 4]
    assert later.unsure.tolist() == [True, True, False]
    assert later.states()[(b"3",)] == KeyStates((b"3", b"c"), None, frozenset({None}))
