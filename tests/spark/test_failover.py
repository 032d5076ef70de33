"""Events and definitions from the binlogs of several servers: the second one has lower file numbers."""

from dataclasses import replace

import pytest

from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import COLUMNS, ORDERS

T0 = 1_700_000_000_000
A, B, C = (f"{letter * 8}-1111-1111-1111-111111111111" for letter in "abc")
GROWN = (*COLUMNS, ColumnSpec("price", "int"))
RENAMED = (COLUMNS[0], ColumnSpec("title", "varchar"), GROWN[2])


def on(server: str, number: int, file: int, *, second: int) -> Place:
    return Place(file, 100 + number, 0, T0 + second * 1000, "abc".index(server[0]) + 1, f"{server}:{number}")


def defined(place: Place, columns: tuple[ColumnSpec, ...], ddl: str = "CREATE TABLE orders ...") -> Record:
    value = schema_change_event(place, "orders", columns, ["id"], kind=ddl.partition(" ")[0], ddl=ddl)
    return Record("shop", 0, None, value)


def created(place: Place, columns: tuple[ColumnSpec, ...], *values: object, with_schema: bool) -> Record:
    row = dict(zip([c.name for c in columns], values, strict=True))
    key, value = key_of(row, ["id"]), change_event("c", place, "orders", after=row)
    if with_schema:
        key, value = with_key_schema(key, columns, ["id"], ORDERS), with_value_schema(value, columns, ORDERS)
    return Record(ORDERS, 0, key, value)


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("cut", [None, 1, 2, 3, 4, 5])
def test_schema_changes_of_each_server_apply_to_its_own_events(
    lake: LakeHarness, *, with_schema: bool, cut: int | None
) -> None:
    """The table is altered on A, on B after a fail-over, and on A again; definitions arrive before all events."""
    retitled = (*RENAMED, ColumnSpec("note", "varchar"))
    lake.write(
        [
            defined(on(A, 1, 900, second=0), COLUMNS),
            defined(on(A, 5, 900, second=50), GROWN, "ALTER TABLE orders ADD COLUMN price INT"),
            defined(on(B, 3, 7, second=130), RENAMED, "ALTER TABLE orders RENAME COLUMN name TO title"),
            defined(on(A, 9, 901, second=250), retitled, "ALTER TABLE orders ADD COLUMN note VARCHAR(20)"),
        ]
    )
    events = [
        created(on(A, 2, 900, second=10), COLUMNS, 1, "one", with_schema=with_schema),
        created(on(A, 6, 900, second=60), GROWN, 2, "two", 20, with_schema=with_schema),
        # The fail-over to B, before and after its own change.
        created(on(B, 1, 7, second=110), GROWN, 3, "three", 30, with_schema=with_schema),
        created(on(B, 4, 7, second=140), RENAMED, 4, "four", 40, with_schema=with_schema),
        # Back to A, whose positions are higher than those of B.
        created(on(A, 8, 901, second=240), RENAMED, 5, "five", 50, with_schema=with_schema),
        created(on(A, 10, 901, second=260), retitled, 6, "six", 60, "new", with_schema=with_schema),
    ]
    if cut is None:
        lake.write(events)
        lake.catch_up()
    else:
        lake.write(events[:cut])
        lake.catch_up()
        lake.write(events[cut:])
        lake.catch_up()
    wanted = [
        (1, "one", None, None),
        (2, "two", 20, None),
        (3, "three", 30, None),
        (4, "four", 40, None),
        (5, "five", 50, None),
        (6, "six", 60, "new"),
    ]
    found = sorted((r["id"], r["title"], r["price"], r["note"]) for r in lake.rows("orders"))
    assert found == wanted
    assert len(lake.rows("orders", "shop_changes")) == len(wanted)


PAGE = (ColumnSpec("page", "varchar"),)
VISITS = "shop.shop.visits"

VISITS_CREATED = Record(
    "shop", 0, None, schema_change_event(Place(1, 4, 0, T0), "visits", PAGE, [], kind="CREATE")
)


def visit(place: Place, page: str) -> Record:
    return Record(VISITS, 0, None, change_event("c", place, "visits", after={"page": page}))


def resent(number: int, pos: int) -> Place:
    """Return the place of a transaction of A in the binlog of another server."""
    return Place(9, pos, 0, T0 + 9_000, 1, f"{A}:{number}")


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.fault(
    "A fail-over to a server on which one of the next transactions has a lower GTID and all have other positions",
    area="Source",
    on="Iceberg; events by hand",
    outcome="each is applied once",
)
def test_transactions_of_another_server_are_applied_once(lake: LakeHarness, driver_max_events: int) -> None:
    """Equal rows of a table without a key are counted, so one that is applied twice would stay."""
    lake.driver_max_events = driver_max_events
    lake.write([VISITS_CREATED, *[visit(on(A, n, 7, second=9), "x") for n in (2, 3, 5)]])
    lake.catch_up()
    # Replicas without preserved order: the first one had transaction 4 behind 5.
    lake.write([visit(resent(n, pos), "x") for n, pos in [(4, 600), (6, 700)]])
    # The connector restarts there.
    lake.write([visit(resent(n, pos), "x") for n, pos in [(4, 600), (6, 700), (7, 800)]])
    assert lake.catch_up().summary().paused == {}
    assert len(lake.rows("visits")) == 3 + 3


@pytest.mark.fault(
    "A fail-over may have interrupted the connector within a transaction, and the new server sends it again",
    area="Source",
    on="Iceberg; events by hand",
    outcome="its tables pause, and are read again",
)
def test_interrupted_transaction_pauses_its_tables(lake: LakeHarness) -> None:
    before, after = [on(A, n, 7, second=9) for n in (2, 5)], [resent(5, 500), resent(6, 600)]

    def order(place: Place) -> Record:
        return created(place, COLUMNS, place.pos % 100, "x", with_schema=False)

    lake.write([VISITS_CREATED, *[visit(place, "x") for place in before]])
    lake.write([defined(on(A, 1, 7, second=0), COLUMNS), *map(order, before)])
    lake.catch_up()
    lake.write([record for place in after for record in (visit(place, "x"), order(place))])
    paused = lake.catch_up().summary().paused
    assert paused.keys() == {"shop.orders", "shop.visits"}
    for table, reason in paused.items():
        assert f"{A}:5" in reason
        assert "interrupted when another server became the source" in reason
        assert len(lake.rows(table.removeprefix("shop."))) == 2
    # A later process sees only the rest of the transaction.
    assert lake.catch_up().summary().paused.keys() == paused.keys()


@pytest.mark.fault(
    "A fail-over interrupts the connector within a transaction; the new server has it in a file with the same number",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses at the next change, and is read again",
)
def test_interrupted_transaction_in_a_file_of_the_same_number_pauses_any_table(lake: LakeHarness) -> None:
    def order(number: int, pos: int) -> Record:
        return created(replace(resent(number, pos), file=7), COLUMNS, pos, "x", with_schema=False)

    lake.write([defined(on(A, 1, 7, second=0), COLUMNS), order(2, 200), order(5, 500), order(5, 510)])
    lake.catch_up()
    # What the table lacks of transaction 5 is at 495, and looks like an event that was sent before.
    lake.write([order(5, pos) for pos in (475, 485, 495)])
    assert lake.catch_up().summary().paused == {}
    lake.write([order(6, 600)])
    (reason,) = lake.catch_up().summary().paused.values()
    assert "interrupted when another server became the source" in reason


def changed(place: Place, number: int, columns: tuple[ColumnSpec, ...]) -> Record:
    return created(place, columns, *(number, f"n{number}", number)[: len(columns)], with_schema=True)


@pytest.mark.fault(
    "A fail-over to a server with lower positions, and a restart of the mirror, without a schema-change topic",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the columns that the events show are followed",
)
@pytest.mark.parametrize("columns", [COLUMNS, GROWN])
@pytest.mark.long
def test_new_process_follows_the_schemas_of_another_server_without_definitions(
    lake: LakeHarness, columns: tuple[ColumnSpec, ...]
) -> None:
    """Only events show the columns; the process that saw those of the first server has ended."""
    records = [changed(on(A, n, 900, second=10 * n), n, COLUMNS) for n in (1, 2)]
    records += [changed(on(B, n, 3, second=1000 + n), n, columns) for n in (3, 4)]
    for record in records:
        lake.write([record])
        assert lake.catch_up().summary().paused == {}
    found = sorted((r["id"], r["name"], r.get("price")) for r in lake.rows("orders"))
    prices = {3: 3, 4: 4} if columns == GROWN else {}
    assert found == [(n, f"n{n}", prices.get(n)) for n in (1, 2, 3, 4)]


@pytest.mark.long
def test_new_process_pauses_if_another_server_begins_with_a_redelivered_event_without_definitions(
    lake: LakeHarness,
) -> None:
    """The event has the columns of any version before that of the lake."""
    lake.write([changed(on(A, n, 900, second=10 * n), n, COLUMNS) for n in (1, 2)])
    lake.catch_up()
    before = lake.rows("orders")
    again = Place(3, 50, 0, T0 + 20_000, 2, f"{A}:2")
    lake.write([changed(again, 2, COLUMNS), changed(on(B, 3, 3, second=1003), 3, COLUMNS)])
    assert (
        "was interrupted when another server became the source"
        in lake.catch_up().summary().paused["shop.orders"]
    )
    assert lake.rows("orders") == before
