"""Transactions in a binlog whose rows the change events do not tell, in what a real server lists."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.dml import ChangedTables
from replicator.sources.binlog.deviations import (
    BinlogPlace,
    Cascade,
    Deviation,
    DeviationKind,
    DeviationScanner,
    may_cascade,
)
from tests.support.listed_events import (
    CALLS,
    CASCADES,
    COMMITTED,
    COMPRESSED,
    DEFINITIONS,
    FILE,
    LOGGED_CASCADES,
    PREPARED_CASCADE,
    ROLLED_BACK,
    ROWS,
    STATEMENTS,
    UUID,
    listed,
)

A, B = TableId("shop", "a"), TableId("shop", "b")


def scan(text: str) -> list[Deviation]:
    return DeviationScanner().scan(listed(text))


def test_rolled_back_transaction_deviates_in_the_tables_of_its_row_events() -> None:
    assert scan(ROLLED_BACK) == [
        Deviation(
            DeviationKind.ROLLED_BACK,
            ChangedTables(frozenset({A, B})),
            BinlogPlace(FILE, 1428),
            BinlogPlace(FILE, 1610),
            f"{UUID}:5",
        )
    ]


def test_compressed_transaction_is_seen_too() -> None:
    (found,) = scan(COMPRESSED)
    assert (found.kind, found.gtid) == (DeviationKind.ROLLED_BACK, f"{UUID}:10")
    assert found.changed.tables == {A}


def test_definitions_do_not_deviate_except_a_table_made_of_a_query() -> None:
    assert [found.changed.tables for found in scan(DEFINITIONS)] == [{TableId("shop", "c")}]


def test_each_transaction_with_a_statement_deviates() -> None:
    found = scan(STATEMENTS)
    assert {d.kind for d in found} == {DeviationKind.STATEMENT}
    assert [d.at.pos for d in found] == [4429, 4771, 5221, 5637, 5979]
    assert [(d.changed.may_have(A), d.changed.may_have(B)) for d in found] == [
        (True, False),
        (True, True),
        (True, True),
        (False, True),
        (False, True),
    ]


def test_function_may_change_all_tables_of_its_database() -> None:
    called, other = scan(CALLS)
    assert called.changed.databases == {"shop"}
    assert other.changed.tables == {A}


def test_open_transaction_is_known_and_a_restart_begins_with_it() -> None:
    scanner, events = DeviationScanner(), listed(ROLLED_BACK)
    following = BinlogPlace(FILE, 1610)
    assert scanner.scan(events[:-2]) == []
    assert [found.tables.tables for found in scanner.open.values()] == [{A, B}]
    assert scanner.restart_at(following) == BinlogPlace(FILE, 867)
    assert len(scanner.scan(events[-2:])) == 1
    assert not scanner.open
    assert scanner.restart_at(following) == following


def test_outcome_of_an_unknown_transaction() -> None:
    rolled_back, committed = (listed(text)[-2:] for text in (ROLLED_BACK, COMMITTED))
    assert [d.kind for d in DeviationScanner().scan(rolled_back)] == [DeviationKind.UNKNOWN]
    assert DeviationScanner().scan(committed) == []


def test_statements_of_an_xa_transaction_deviate_only_if_it_commits() -> None:
    statement = "1100\tQuery\t1126\tuse `shop`; DELETE FROM a"
    stated = [
        "\n".join([*text.strip().splitlines()[:2], statement, *text.strip().splitlines()[-4:]])
        for text in (ROLLED_BACK, COMMITTED)
    ]
    rolled_back, committed = map(scan, stated)
    assert rolled_back == []
    assert [(d.kind, set(d.changed.tables)) for d in committed] == [(DeviationKind.STATEMENT, {A})]


DELETE, UPDATE = Cascade(A, B), Cascade(A, B, on_delete=False, on_update=True)


def cascaded(text: str, *cascades: Cascade) -> list[tuple[int, frozenset[TableId]]]:
    """Return the ends of the transactions that may have changed rows by foreign keys, and the tables."""
    scanner = DeviationScanner()
    scanner.cascades = frozenset(cascades)
    found = scanner.scan(listed(text))
    assert {d.kind for d in found} <= {DeviationKind.CASCADE}
    return [(d.end.pos, d.changed.tables) for d in found]


def test_deleted_and_updated_parents_change_their_children_without_events() -> None:
    first, second, third = (listed(CASCADES)[i:j] for i, j in ((0, 5), (5, 10), (10, 16)))
    for events, deletes in ((first, True), (second, False), (third, True)):
        scanner = DeviationScanner()
        scanner.cascades = frozenset({DELETE if deletes else UPDATE})
        (found,) = scanner.scan(events)
        assert (found.kind, found.changed.tables) == (DeviationKind.CASCADE, frozenset({B}))
        scanner.cascades = frozenset({UPDATE if deletes else DELETE, Cascade(B, A, on_update=True)})
        assert scanner.scan(events) == []


def test_only_the_last_of_several_cascades_to_the_same_tables_counts() -> None:
    assert cascaded(CASCADES, DELETE) == [(2405, frozenset({B}))]
    assert cascaded(CASCADES, UPDATE) == [(2069, frozenset({B}))]
    assert cascaded(CASCADES) == []


def test_a_prepared_transaction_cascades_once_it_is_committed() -> None:
    assert cascaded(PREPARED_CASCADE, DELETE) == [(2974, frozenset({B}))]
    rolled_back = PREPARED_CASCADE.replace("XA COMMIT", "XA ROLLBACK")
    scanner = DeviationScanner()
    scanner.cascades = frozenset({DELETE})
    (found,) = scanner.scan(listed(rolled_back))
    assert (found.kind, found.changed.tables) == (DeviationKind.ROLLED_BACK, frozenset({A}))


def test_cascades_that_have_events_and_those_that_did_not_happen_do_not_deviate() -> None:
    assert cascaded(LOGGED_CASCADES, DELETE, UPDATE, Cascade(B, A, on_update=True)) == []
    assert not may_cascade([*listed(LOGGED_CASCADES), *listed(ROWS)])
    assert may_cascade(listed(CASCADES))


PARTIAL = f"""
39878	Gtid	39957	SET @@SESSION.GTID_NEXT= '{UUID}:146'
39957	Query	40049	BEGIN
40049	Table_map	40118	table_id: 1088 (shop.a)
40118	Update_rows_partial	40173	table_id: 1088 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
40173	Xid	40204	COMMIT /* xid=4131 */
"""
INCIDENT = f"""
40996	Gtid	41073	SET @@SESSION.GTID_NEXT= '{UUID}:150'
41073	Incident	41160	#1 (LOST_EVENTS)
41160	Rotate	41207	mysql-bin.000002;pos=4
"""


def test_rows_with_parts_of_values_deviate() -> None:
    (found,) = scan(PARTIAL)
    assert (found.kind, found.changed.tables, found.end.pos) == (
        DeviationKind.PARTIAL,
        frozenset({A}),
        40204,
    )


def test_prepared_rows_with_parts_of_values_deviate_when_they_are_committed() -> None:
    text = COMMITTED.replace("Write_rows", "Update_rows_partial")
    assert [(found.kind, found.changed.tables) for found in scan(text)] == [
        (DeviationKind.PARTIAL, frozenset({A}))
    ]


def test_incident_deviates_and_its_tables_are_not_known() -> None:
    (found,) = scan(INCIDENT)
    assert (found.kind, found.changed.tables, found.end.pos) == (DeviationKind.LOST, frozenset(), 41160)


@pytest.mark.parametrize(("text", "count"), [(ROWS, 0), (COMMITTED, 0), (PARTIAL, 0), (STATEMENTS, 0)])
def test_changes_of_rows_are_no_statements_that_may_change_definitions(text: str, count: int) -> None:
    scanner = DeviationScanner()
    scanner.scan(listed(text))
    assert scanner.statements == count


def test_statements_that_may_change_definitions_are_counted() -> None:
    scanner = DeviationScanner()
    scanner.scan(listed(DEFINITIONS))
    assert scanner.statements > 0
