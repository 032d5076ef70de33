"""Tables whose key is dropped, or may be NULL, while the mirror runs: all values identify a row then."""

from collections import Counter

import pytest

from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.schema.evolution.own_columns import COLUMNS_KEY
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import Scenario, changelog, play

A, B = ColumnSpec("a", "int", False), ColumnSpec("b", "int")
UNIQUE = "CREATE TABLE orders (a INT NOT NULL, b INT, UNIQUE KEY uk (a), KEY k (b))"
WAYS = [("once", False), ("once", True), pytest.param("each", True, marks=pytest.mark.long)]
ways = pytest.mark.parametrize(("cut", "with_schemas"), WAYS)
Pair = tuple[int | None, int | None]


def keyed_by_a(with_schemas: bool) -> Scenario:
    scenario = Scenario([A, B], with_schemas, key=["a"])
    scenario.records.clear()
    scenario.define(UNIQUE, [A, B], kind="CREATE")
    return scenario


def row(pair: Pair) -> dict[str, int | None]:
    return dict(zip("ab", pair, strict=True))


def mirrored(lake: LakeHarness, namespace: str = "shop") -> Counter[Pair]:
    return Counter((r["a"], r["b"]) for r in lake.rows("orders", namespace))


def required(lake: LakeHarness) -> tuple[set[str], set[str]]:
    """Return the mirror's identifier fields and its required columns."""
    with lake.catalog() as catalog:
        schema = catalog.load_table(("shop", "orders")).schema()
    return set(schema.identifier_field_names()), {f.name for f in schema.fields if f.required}


@pytest.mark.parametrize(
    ("cut", "with_schemas", "defined"),
    [
        ("once", False, True),
        ("half", True, True),
        pytest.param("each", False, False, marks=pytest.mark.long),
        ("once", True, False),
    ],
)
def test_equal_rows_stay_when_their_unique_key_is_dropped(
    lake: LakeHarness, cut: str, with_schemas: bool, defined: bool
) -> None:
    """Debezium goes on using the columns of the dropped key as the key of its events."""
    scenario = keyed_by_a(with_schemas)
    scenario.insert(a=1, b=1)
    scenario.insert(a=2, b=2)
    scenario.change("u", before=row((2, 2)), after=row((2, 3)))
    if defined:
        scenario.define("ALTER TABLE orders DROP INDEX uk", [A, B])
    else:
        scenario.execute("DROP INDEX uk ON orders")
    for _ in range(2):
        scenario.insert(a=1, b=1)
    scenario.insert(a=1, b=9)
    scenario.change("u", before=row((1, 1)), after=row((1, 5)))
    scenario.change("d", before=row((2, 3)))
    # An update of the key's columns arrives as a delete and an insert.
    scenario.change("d", before=row((1, 9)))
    scenario.insert(a=3, b=9)
    play(lake, scenario, cut)
    assert mirrored(lake) == {(1, 1): 2, (1, 5): 1, (3, 9): 1}
    assert required(lake) == (set(), set())
    assert len(changelog(lake)) == 12
    context = lake.mirror().context
    rebuild_tables(context.config, context.lake, (), as_of=None, to="then")
    assert mirrored(lake, "then") == mirrored(lake)


@ways
def test_table_is_keyed_again_when_a_key_is_defined(lake: LakeHarness, cut: str, with_schemas: bool) -> None:
    scenario = keyed_by_a(with_schemas)
    scenario.insert(a=1, b=1)
    scenario.define("ALTER TABLE orders DROP INDEX uk, MODIFY a INT NULL", [ColumnSpec("a", "int"), B])
    scenario.insert(a=None, b=1)
    scenario.insert(a=2, b=1)
    scenario.change("d", before=row((None, 1)))
    scenario.define("ALTER TABLE orders ADD PRIMARY KEY (a)", [A, B], ["a"])
    scenario.change("u", before=row((2, 1)), after=row((2, 7)))
    scenario.insert(a=3, b=1)
    scenario.change("d", before=row((1, 1)))
    play(lake, scenario, cut)
    assert mirrored(lake) == {(2, 7): 1, (3, 1): 1}


def test_lake_of_an_earlier_release_gets_optional_columns(lake: LakeHarness) -> None:
    """It followed the version without a key, left the columns of the dropped key required, and recorded no columns."""
    scenario = keyed_by_a(with_schemas=False)
    scenario.insert(a=1, b=1)
    scenario.define("ALTER TABLE orders DROP INDEX uk, MODIFY a INT NULL", [ColumnSpec("a", "int"), B])
    scenario.insert(a=2, b=1)
    play(lake, scenario, "once")
    with lake.catalog() as catalog, catalog.load_table(("shop", "orders")).transaction() as transaction:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            update.update_column("a", required=True)
            update.set_identifier_fields("a")
        transaction.remove_properties(COLUMNS_KEY)
    assert required(lake) == ({"a"}, {"a"})
    scenario.records.clear()
    scenario.insert(a=None, b=3)
    scenario.insert(a=1, b=1)
    lake.write(scenario.records)
    assert lake.catch_up().summary().paused == {}
    assert mirrored(lake) == {(1, 1): 2, (2, 1): 1, (None, 3): 1}
    assert required(lake) == (set(), set())


def test_table_pauses_when_it_loses_its_key_and_may_have_no_mirror_then(lake: LakeHarness) -> None:
    scenario = keyed_by_a(with_schemas=False)
    scenario.insert(a=1, b=1)
    scenario.define("ALTER TABLE orders DROP INDEX uk", [A, B])
    scenario.insert(a=1, b=1)
    lake.write(scenario.records)
    config = lake.config(table=[{"name": "shop.orders", "keyless": "changelog"}])
    (reason,) = lake.catch_up(config).summary().paused.values()
    assert reason.startswith("shop.orders has no key any more")
    assert mirrored(lake) == {(1, 1): 1}
    assert lake.catch_up().summary().paused == {}
    assert mirrored(lake) == {(1, 1): 2}
