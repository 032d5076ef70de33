"""Reading a binlog bit by bit, from a server that answers as MySQL does."""

import pytest

from replicator.model.binlog import Watched
from replicator.model.table import TableId
from replicator.sources.binlog.deviations import Deviation, DeviationKind, ListedEvent
from replicator.sources.mysql.deviation_reader import DeviationReader
from tests.support.listed_events import (
    CASCADES,
    COMPRESSED,
    FILE,
    ROLLED_BACK,
    SERVER,
    STATEMENTS,
    UUID,
    ListingServer,
    listed,
)

NEXT = "mysql-bin.000002"


def read_all(reader: DeviationReader, server: ListingServer) -> list[Deviation]:
    found: list[Deviation] = []
    more = True
    while more:
        some, more = reader.read(server.connection)
        found += some
    return found


def known(pos: int, done: int | None = None, file: str = FILE) -> Watched:
    return Watched(SERVER, file, pos, file, pos if done is None else done)


def test_without_a_record_it_begins_at_the_end() -> None:
    server, reader = ListingServer({FILE: listed(ROLLED_BACK)}), DeviationReader()
    assert read_all(reader, server) == []
    assert reader.watched() == known(1610)
    server.files[FILE] += listed(STATEMENTS)[:4]
    assert len(read_all(reader, server)) == 1


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_bits_of_any_size_give_the_same(most: int) -> None:
    server = ListingServer({FILE: listed(ROLLED_BACK) + listed(COMPRESSED), NEXT: listed(STATEMENTS, NEXT)})
    reader = DeviationReader(known(867), most)
    assert [(d.at.file, d.at.pos) for d in read_all(reader, server)] == [
        (FILE, 1428),
        (FILE, 2995),
        *((NEXT, pos) for pos in (4429, 4771, 5221, 5637, 5979)),
    ]
    assert reader.watched() == known(6325, file=NEXT)
    asked = len(server.statements)
    assert read_all(reader, server) == []
    assert len(server.statements) == asked


def test_transaction_in_two_files_is_found_and_a_restart_does_not_find_it_twice() -> None:
    events = listed(ROLLED_BACK)
    server = ListingServer({FILE: events[:-2], NEXT: [e._replace(file=NEXT) for e in events[-2:]]})
    first = DeviationReader(known(867))
    first.read(server.connection)
    assert first.watched() == Watched(SERVER, FILE, 867, NEXT, 4)
    second = DeviationReader(first.watched())
    (found,) = read_all(second, server)
    assert found.at.file == NEXT
    assert read_all(DeviationReader(Watched(SERVER, FILE, 867, NEXT, 1610)), server) == []


def test_deleted_binlog_is_a_gap_that_is_told_once() -> None:
    server, reader = ListingServer({NEXT: listed(STATEMENTS, NEXT)}), DeviationReader(known(867))
    assert len(read_all(reader, server)) == 5
    gap = reader.take_gap()
    assert gap is not None
    assert (str(gap.since), gap.reason) == (f"{FILE}:867", "MySQL has deleted its binlog")
    assert reader.take_gap() is None


def test_another_server_is_a_gap_too_and_is_watched_from_its_end() -> None:
    server = ListingServer({FILE: listed(STATEMENTS)}, uuid="4f22", gtids=f"{UUID}:1-4")
    reader = DeviationReader(known(867))
    assert read_all(reader, server) == []
    gap = reader.take_gap()
    assert gap is not None
    assert gap.reason == "another server has become the source"
    assert reader.watched() == Watched("4f22", FILE, 6325, FILE, 6325, f"{UUID}:1-4")


def test_all_tables_are_suspected_if_another_server_has_no_gtids() -> None:
    server, reader = ListingServer({FILE: listed(STATEMENTS)}, uuid="4f22"), DeviationReader(known(867))
    (found,) = read_all(reader, server)
    assert (found.kind, found.end, found.gtid) == (DeviationKind.OTHER_SERVER, (FILE, 6325), None)
    assert read_all(DeviationReader(reader.watched()), server) == []


def test_transactions_since_a_fail_over_are_watched_by_their_gtids() -> None:
    events = listed(ROLLED_BACK)
    before = ListingServer({FILE: events[:-2]}, gtids=f"{UUID}:1-4")
    reader = DeviationReader(known(867))
    assert (read_all(reader, before), read_all(reader, before)) == ([], [])
    # The other server has the transaction in an older file, and its outcome behind others that were watched.
    previous = [ListedEvent(NEXT, 4, "Previous_gtids", 100, f"{UUID}:1-3")]
    newest = [ListedEvent("mysql-bin.000003", 4, "Previous_gtids", 100, f"{UUID}:1-5")]
    after = ListingServer(
        {
            FILE: [ListedEvent(FILE, 4, "Previous_gtids", 100, "")],
            NEXT: [*previous, *(e._replace(file=NEXT) for e in events)],
            "mysql-bin.000003": newest,
        },
        uuid="4f22",
    )
    (found,) = read_all(reader, after)
    assert (found.at.file, found.gtid) == (NEXT, f"{UUID}:5")
    assert reader.take_gap() is None


def test_what_was_watched_before_a_fail_over_is_not_found_again() -> None:
    before = ListingServer({FILE: listed(STATEMENTS)}, gtids=f"{UUID}:1-18")
    reader = DeviationReader(Watched(SERVER, FILE, 4429, FILE, 4429))
    assert len(read_all(reader, before)) == 5
    assert read_all(reader, before) == []
    again = DeviationReader(reader.watched())
    previous = ListedEvent(NEXT, 4, "Previous_gtids", 100, f"{UUID}:1-10")
    after = ListingServer({NEXT: [previous, *listed(STATEMENTS, NEXT)]}, uuid="4f22")
    assert [d.gtid for d in read_all(again, after)] == [f"{UUID}:19"]
    assert again.take_gap() is None


def test_foreign_keys_are_asked_for_when_rows_of_tables_change_and_removed_ones_count_once_more() -> None:
    server, reader = ListingServer({FILE: listed(CASCADES)[:5]}), DeviationReader(known(1466))
    server.cascades = [("shop", "a", "shop", "b", "CASCADE", "RESTRICT")]
    assert len(read_all(reader, server)) == 1
    server.cascades = []
    server.files[FILE] = listed(CASCADES)
    (found,) = read_all(reader, server)
    assert found.end.pos == 2405
    server.files[FILE] += [
        event._replace(pos=event.pos + 939, end=event.end + 939) for event in listed(CASCADES)
    ]
    assert read_all(reader, server) == []


def test_statement_in_another_character_set_is_read() -> None:
    """MySQL lists the bytes that the session wrote."""
    text = "867\tQuery\t946\tuse `shop`; CREATE TABLE z (id INT COMMENT 'gr\udcf6\udcdfe')"
    later = "946\tQuery\t1046\tuse `shop`; DELETE FROM a"
    server, reader = ListingServer({FILE: listed(f"{text}\n{later}")}), DeviationReader(known(867))
    assert [d.changed.tables for d in read_all(reader, server)] == [{TableId("shop", "a")}]
    assert reader.statements == 1
    assert server.use_unicode
