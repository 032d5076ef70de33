"""Are binary log files complete and in sequence?"""

from pathlib import Path

import pytest

from replicator.errors import BinlogError
from replicator.model.table import TableId
from replicator.sources.binlog.events import IN_USE, MAGIC, Kind, Query
from replicator.sources.binlog.scan import Scan, check_sequence, scan
from tests.support.binlog_files import (
    CREATED,
    event,
    format_event,
    gtid,
    previous_gtids,
    query,
    rotate,
    table_map,
    write_file,
)


def checked(*paths: Path) -> Scan:
    found = scan(paths)
    check_sequence(found.files)
    return found


def test_scan_returns_what_a_file_contains(tmp_path: Path) -> None:
    ddl = "CREATE TABLE t (id INT)"
    path = write_file(
        tmp_path,
        3,
        previous_gtids(5),
        gtid(),
        query(ddl, collation=8),
        gtid(),
        query("BEGIN"),
        rotate("mysql-bin.000004"),
    )
    done: list[int] = []
    found = scan([path], done.append)
    (file,) = found.files
    assert (file.name, file.version, file.created, file.server_id) == (
        "mysql-bin.000003",
        "8.0.36",
        CREATED,
        7,
    )
    assert (file.events, file.gtids, file.anonymous, file.earlier_gtids) == (7, 2, 0, 5)
    assert (file.next_name, file.is_open, file.cut_at, file.collation) == ("mysql-bin.000004", False, None, 8)
    assert found.items == (Query("shop", ddl, 8),)
    assert sum(done) == path.stat().st_size


def test_scan_returns_tables_where_their_first_rows_are(tmp_path: Path) -> None:
    events = [table_map("a"), query("ALTER TABLE a DROP n"), table_map("a"), table_map("b")]
    first, _, last = scan([write_file(tmp_path, 1, *events)]).items
    assert (first, last) == (TableId("shop", "a"), TableId("shop", "b"))


@pytest.mark.parametrize("checksum", [True, False])
def test_scan_reads_files_with_and_without_checksums(tmp_path: Path, checksum: bool) -> None:
    path = write_file(
        tmp_path,
        1,
        event(Kind.GTID, bytes(42), checksum=checksum),
        event(Kind.STOP, b"", checksum=checksum),
        first=format_event(checksum=checksum),
    )
    assert scan([path]).files[0].gtids == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xfdbin" + bytes(600), "is encrypted"),
        (b"\x1f\x8b\x08\x00" + bytes(99), "is not a binary log of MySQL"),
        (b"-- MySQL dump", "is not a binary log of MySQL"),
        (MAGIC, "is empty"),
        (MAGIC + event(Kind.STOP, b""), "does not begin like a binary log"),
        (MAGIC + format_event()[:50], "does not begin like a binary log"),
    ],
)
def test_scan_refuses_files_that_are_no_readable_binary_log(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "mysql-bin.000001"
    path.write_bytes(content)
    with pytest.raises(BinlogError, match=reason):
        scan([path])


def test_scan_refuses_an_event_with_a_wrong_checksum(tmp_path: Path) -> None:
    path = write_file(tmp_path, 1, gtid(), query("BEGIN"))
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    at = len(MAGIC) + len(format_event()) + len(gtid())
    with pytest.raises(BinlogError, match=f"damaged at offset {at}"):
        scan([path])


def test_only_the_last_file_may_be_incomplete(tmp_path: Path) -> None:
    whole = write_file(tmp_path, 1, previous_gtids(0), gtid(), rotate("mysql-bin.000002"))
    cut = write_file(
        tmp_path, 2, previous_gtids(1), gtid(), query("BEGIN")[:-5], first=format_event(flags=IN_USE)
    )
    files = checked(whole, cut).files
    assert files[1].is_open
    assert files[1].cut_at == cut.stat().st_size - len(query("BEGIN")) + 5
    after = write_file(tmp_path, 3, previous_gtids(2))
    with pytest.raises(BinlogError, match=r"mysql-bin\.000002 is not complete"):
        checked(whole, cut, after)


def test_files_follow_each_other(tmp_path: Path) -> None:
    one = write_file(tmp_path, 1, previous_gtids(0), gtid(), rotate("mysql-bin.000002"))
    two = write_file(tmp_path, 2, previous_gtids(1), gtid())
    three = write_file(tmp_path, 3, previous_gtids(2))
    checked(one, two, three)
    for files, reason in (
        ((one, three), "mysql-bin.000002 is missing between mysql-bin.000001 and mysql-bin.000003"),
        ((two, one), "mysql-bin.000001 was given after mysql-bin.000002"),
        ((one, one), "mysql-bin.000001 was given after mysql-bin.000001"),
        ((), "no binary log file was given"),
    ):
        with pytest.raises(BinlogError, match=reason):
            checked(*files)


def test_a_file_of_another_server_or_name_is_refused(tmp_path: Path) -> None:
    one = write_file(tmp_path, 1, previous_gtids(0), rotate("mysql-bin.000002"))
    for name, reason in (("other.000002", "of another server"), ("binlog.old", "does not have the name")):
        path = tmp_path / name
        path.write_bytes(MAGIC + format_event())
        with pytest.raises(BinlogError, match=reason):
            checked(one, path)
    maria = write_file(tmp_path, 2, first=format_event("10.11.6-MariaDB-log"))
    with pytest.raises(BinlogError, match="was written by 10"):
        checked(one, maria)


def test_lost_transactions_are_found_by_their_gtids(tmp_path: Path) -> None:
    one = write_file(tmp_path, 1, previous_gtids(0), gtid(), gtid())
    with pytest.raises(
        BinlogError, match=r"mysql-bin\.000002 follows 3 transactions that mysql-bin\.000001 lacks"
    ):
        checked(one, write_file(tmp_path, 2, previous_gtids(5)))
    with pytest.raises(BinlogError, match="begun before 1 of its transactions"):
        checked(one, write_file(tmp_path, 2, previous_gtids(1)))


def test_files_with_and_without_gtids_are_refused(tmp_path: Path) -> None:
    one = write_file(tmp_path, 1, gtid(Kind.ANONYMOUS_GTID))
    with pytest.raises(BinlogError, match="have GTIDs, and others have none"):
        checked(one, write_file(tmp_path, 2, gtid()))


def test_incident_is_a_gap(tmp_path: Path) -> None:
    path = write_file(tmp_path, 3, gtid(), event(Kind.INCIDENT, b"\x01\x00\x00"), rotate("mysql-bin.000004"))
    with pytest.raises(BinlogError, match="lacks changes: the server could not write them"):
        checked(path)


def test_tables_with_parts_of_values_are_told(tmp_path: Path) -> None:
    whole, partial = event(31, bytes(20)), event(Kind.PARTIAL_UPDATE, bytes(20))
    path = write_file(tmp_path, 3, table_map("a"), whole, table_map("b"), partial)
    assert scan([path]).partial == {TableId("shop", "b")}
