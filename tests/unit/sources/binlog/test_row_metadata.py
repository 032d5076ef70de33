"""Definitions of tables from the descriptions of their rows."""

import pytest

from replicator.errors import BinlogError
from replicator.model.table import TableId
from replicator.sources.binlog import table_map as types
from replicator.sources.binlog.row_metadata import Collation, create_table
from replicator.sources.binlog.table_map import MapColumn, TableMap, read_table_map

COLLATIONS = {
    255: Collation("utf8mb4_0900_ai_ci", "utf8mb4", 4),
    8: Collation("latin1_swedish_ci", "latin1", 1),
    63: Collation("binary", "binary", 1),
}
UTF8 = "CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci"


@pytest.mark.parametrize(
    ("column", "definition"),
    [
        (MapColumn("c", types.TINY, 0, True, unsigned=True), "TINYINT UNSIGNED NULL"),
        (MapColumn("c", types.LONGLONG, 0, False), "BIGINT NOT NULL"),
        (MapColumn("c", types.NEWDECIMAL, 0x020A, True), "DECIMAL(10, 2) NULL"),
        (MapColumn("c", types.BIT, 0x0103, True), "BIT(11) NULL"),
        (MapColumn("c", types.DATETIME, 6, True), "DATETIME(6) NULL"),
        (MapColumn("c", types.TIMESTAMP, 0, False), "TIMESTAMP(0) NOT NULL"),
        (MapColumn("c", types.VARCHAR, 80, True, collation=255), f"VARCHAR(20) {UTF8} NULL"),
        (MapColumn("c", types.VARCHAR, 20, True, collation=63), "VARBINARY(20) NULL"),
        # 255 characters of four bytes: the two highest bits of the length are in the first byte.
        (MapColumn("c", types.STRING, 0xFCCE, True, collation=255), f"CHAR(255) {UTF8} NULL"),
        (MapColumn("c", types.STRING, 0x28FE, True, collation=255), f"CHAR(10) {UTF8} NULL"),
        (MapColumn("c", types.STRING, 0x10FE, True, collation=63), "BINARY(16) NULL"),
        (MapColumn("c", types.BLOB, 3, True, collation=63), "MEDIUMBLOB NULL"),
        (MapColumn("c", types.BLOB, 2, True, collation=255), f"TEXT {UTF8} NULL"),
        (
            MapColumn("c", types.ENUM, 0x01F7, True, collation=8, labels=(b"\xe4'", b"b\\")),
            "ENUM('ä''', 'b\\\\') CHARACTER SET latin1 COLLATE latin1_swedish_ci NULL",
        ),
        (MapColumn("c", types.GEOMETRY, 4, True, subtype=1), "POINT NULL"),
        (MapColumn("c", types.VECTOR, 4, True, subtype=3), "VECTOR(3) NULL"),
    ],
)
def test_create_table_defines_each_type(column: MapColumn, definition: str) -> None:
    table = TableMap(TableId("a`b", "t"), (column,))
    assert create_table(table, COLLATIONS) == f"CREATE TABLE `a``b`.`t` (`c` {definition})"


def test_vectors_have_an_entry_in_the_list_of_collations() -> None:
    names = b"\x01s\x00\x01t\x00"
    columns = bytes([2, types.VECTOR, types.VARCHAR]) + b"\x03\x04" + (80).to_bytes(2, "little") + b"\x03"
    # The default is `binary`; the second of the two has collation 255.
    collations = b"\x02\x05\x3f\x01\xfc\xff\x00"
    column_names = b"\x04\x04\x01v\x01c"
    found = read_table_map(memoryview(bytes(8) + names + columns + collations + column_names))
    assert [(c.name, c.type, c.collation, c.nullable) for c in found.columns] == [
        ("v", types.VECTOR, 63, True),
        ("c", types.VARCHAR, 255, True),
    ]


def test_create_table_defines_the_key_with_prefixes() -> None:
    columns = (
        MapColumn("a", types.LONG, 0, False),
        MapColumn("b", types.BLOB, 2, False, collation=63),
    )
    table = TableMap(TableId("s", "t"), columns, (("b", 10), ("a", 0)))
    assert create_table(table, COLLATIONS).endswith("PRIMARY KEY (`b`(10), `a`))")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (MapColumn("", types.LONG, 0, False), "no column names"),
        (MapColumn("c", 250, 0, False), "type that is not known"),
        (MapColumn("c", types.VARCHAR, 20, False, collation=999), "type that is not known"),
    ],
)
def test_create_table_refuses_what_it_cannot_define(column: MapColumn, reason: str) -> None:
    with pytest.raises(BinlogError, match=reason):
        create_table(TableMap(TableId("s", "t"), (column,)), COLLATIONS)
