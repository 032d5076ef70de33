"""Commits on every kind of catalog, each a real server: of two on the same state, exactly one succeeds."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator import failpoints
from replicator.errors import CommitConflict, FencedError, LakeUnavailable, ReplicatorError
from replicator.lake.catalog.exact_commit import ExactTransaction, set_properties
from replicator.lake.catalog.schema_update import alter
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.driver_files import writable_rows, write_data
from replicator.model.commit_marker import CommitMarker
from replicator.model.table import Column
from replicator.model.types import Encoding, LakeType
from replicator.schema.evolution.changes import AddColumn
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.catalog_lakes import KINDS, CatalogLake, CatalogServer, catalog_server
from tests.support.mirror import until
from tests.support.orders_table import COLUMNS, DEFINITION, ORDERS, created, event

SCHEMA = """{"type": "struct", "fields": [
  {"id": 1, "name": "id", "type": "long", "required": true},
  {"id": 2, "name": "name", "type": "string", "required": false}]}"""


@pytest.fixture(scope="module", params=KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CatalogServer]:
    """Run a catalog. If it cannot run: skip, or fail if CI requires it."""
    kind = str(request.param)
    running = catalog_server(kind, tmp_path_factory.mktemp(kind))
    try:
        found = running.__enter__()
    except (ReplicatorError, OSError, RuntimeError, KeyError) as error:
        reason = f"the {kind} catalog cannot run here: {error}"
        if os.environ.get("REPLICATOR_REQUIRE_STACK"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        yield found
    finally:
        running.__exit__(None, None, None)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, server: CatalogServer) -> CatalogLake:
    return CatalogLake(spark, tmp_path, server=server)


@pytest.fixture
def tables(lake: CatalogLake) -> Lake:
    """Return the catalog with a table `orders` to which one row was committed."""
    tables = Lake(lake.session(lake.config()))
    tables.ensure_namespace(lake.namespace)
    table = tables.create(lake.namespace, "orders", SCHEMA, None, {})
    publish(tables, table, None, CommitMarker("shop", 1, 1, {}, None, 0, 0), staged_row(tables, table, 1))
    return tables


def loaded(lake: CatalogLake, tables: Lake) -> tuple[LakeTable, CommitMarker]:
    table = tables.load(lake.namespace, "orders")
    assert table is not None
    base = table.marker()
    assert base is not None
    return table, base


def following(base: CommitMarker, batch: int) -> CommitMarker:
    return replace(base, sequence=base.sequence + 1, batch=batch)


def staged_row(tables: Lake, table: LakeTable, number: int) -> Staged:
    parts = writable_rows(table, pa.table({"id": [number], "name": ["staged"]}))
    assert parts is not None
    return Staged([write_data(tables, table, part).file for part in parts])


def before_commits(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` before each commit, after the commit was prepared on the loaded state."""
    commit = ExactTransaction.commit

    def after_act(self: ExactTransaction) -> None:
        act()
        commit(self)

    monkeypatch.setattr(ExactTransaction, "commit", after_act)


@pytest.mark.fault(
    "Two writers commit to one table at the same moment, rows or properties only",
    area="Other writers",
    on="Iceberg; catalogs: JDBC on SQLite and PostgreSQL, REST server, Hive metastore",
    outcome="exactly one commit succeeds, the other writer stops",
)
@pytest.mark.parametrize("what", ["rows", "properties"])
@pytest.mark.every_case
def test_of_two_commits_on_one_state_exactly_one_succeeds(
    lake: CatalogLake, tables: Lake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    both = threading.Barrier(2, timeout=60)
    before_commits(monkeypatch, both.wait)

    def attempt(number: int) -> CommitMarker | None:
        table, base = loaded(lake, tables)
        staged = staged_row(tables, table, number) if what == "rows" else Staged()
        marker = following(base, number)
        try:
            publish(tables, table, base, marker, staged)
        except FencedError:
            return None
        return marker

    with ThreadPoolExecutor(2) as pool:
        done = [marker for marker in pool.map(attempt, (7, 8)) if marker is not None]
    _, now = loaded(lake, tables)
    assert done == [now]
    expected = [1, now.batch] if what == "rows" else [1]
    assert sorted(row["id"] for row in lake.rows("orders")) == expected


@pytest.mark.fault(
    "A schema change and a commit of rows are made on the same state",
    area="Other writers",
    on="Iceberg; catalogs: JDBC on SQLite and PostgreSQL, REST server, Hive metastore",
    outcome="the second commit is refused",
)
def test_commit_is_refused_after_a_schema_change_on_the_same_state(lake: CatalogLake, tables: Lake) -> None:
    (table, base), (other, _) = loaded(lake, tables), loaded(lake, tables)
    staged = staged_row(tables, table, 7)
    column = Column("note", LakeType("string"), Encoding.PLAIN)
    alter(tables, other, [AddColumn(column, "name")], {"somebody": "else"})
    with pytest.raises(CommitConflict):
        publish(tables, table, base, following(base, 7), staged)
    # The reverse: properties only, on a state with the marker of before.
    (table, base), (other, _) = loaded(lake, tables), loaded(lake, tables)
    publish(tables, table, base, following(base, 7), Staged())
    with pytest.raises(CommitConflict):
        set_properties(other, {"somebody": "again"})
    now, _ = loaded(lake, tables)
    assert now.property("somebody") == "else"


@pytest.mark.fault(
    "Another program commits between the planning of a commit and the commit",
    area="Other writers",
    on="Iceberg; catalogs: JDBC on SQLite and PostgreSQL, REST server, Hive metastore",
    outcome="the commit is refused; on REST, a change of properties only is kept beside it",
)
@pytest.mark.parametrize("what", ["rows", "columns", "properties"])
def test_commit_is_refused_if_another_program_commits_meanwhile(
    lake: CatalogLake, tables: Lake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    table, base = loaded(lake, tables)
    marker, name = following(base, 7), f"lake.{lake.namespace}.orders"
    text = {
        "rows": f"INSERT INTO {name} VALUES (50, 'of another')",
        "columns": f"ALTER TABLE {name} ADD COLUMN theirs string",
        "properties": f"ALTER TABLE {name} SET TBLPROPERTIES ('theirs' = 'yes')",
    }[what]
    before_commits(monkeypatch, lambda: lake.sql(text))
    if what == "properties" and not lake.server.compares_all:
        publish(tables, table, base, marker, Staged())
        now, found = loaded(lake, tables)
        assert (found, now.property("theirs")) == (marker, "yes")
        return
    with pytest.raises(CommitConflict):
        publish(tables, table, base, marker, staged_row(tables, table, 7))
    assert loaded(lake, tables)[1] == base
    assert 7 not in {row["id"] for row in lake.rows("orders")}


@pytest.mark.fault(
    "The connection to the catalog breaks before the answer to a commit",
    area="Other writers",
    on="Iceberg; catalogs: JDBC on SQLite (simulated) and PostgreSQL, REST server, Hive metastore",
    outcome="the table shows that the commit succeeded; it is not repeated",
)
@pytest.mark.parametrize("what", ["rows", "properties"])
def test_lost_answer_is_looked_up_in_the_table(
    lake: CatalogLake, tables: Lake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    table, base = loaded(lake, tables)
    marker = following(base, 7)
    staged = staged_row(tables, table, 7) if what == "rows" else Staged()
    if lake.server.proxy is None:
        commit = ExactTransaction.commit

        def lose_answer(self: ExactTransaction) -> None:
            commit(self)
            raise LakeUnavailable("the connection was lost")

        monkeypatch.setattr(ExactTransaction, "commit", lose_answer)
        publish(tables, table, base, marker, staged)
    else:
        lost = lake.lose_answer().lost
        publish(tables, table, base, marker, staged)
        assert lake.server.proxy.lost == lost + 1
    assert loaded(lake, tables)[1] == marker
    expected = [1, 7] if what == "rows" else [1]
    assert sorted(row["id"] for row in lake.rows("orders")) == expected


@pytest.mark.fault(
    "The connection to the catalog breaks during a commit that another writer wins",
    area="Other writers",
    on="Iceberg; catalogs: PostgreSQL, REST server, Hive metastore",
    outcome="the writer that lost stops",
)
def test_lost_answer_to_a_commit_that_lost_the_race(
    lake: CatalogLake, tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lake.server.proxy is None:
        pytest.skip("this catalog has no connection")
    (table, base), (other, _) = loaded(lake, tables), loaded(lake, tables)
    commit = ExactTransaction.commit

    def second(self: ExactTransaction) -> None:
        monkeypatch.setattr(ExactTransaction, "commit", commit)
        publish(tables, other, base, following(base, 8), Staged())
        lake.lose_answer()
        commit(self)

    monkeypatch.setattr(ExactTransaction, "commit", second)
    with pytest.raises(FencedError):
        publish(tables, table, base, following(base, 7), Staged())
    lake.server.proxy.lose_nothing()
    assert loaded(lake, tables)[1] == following(base, 8)


@pytest.mark.fault(
    "A mirror on any catalog: a conflict in a batch, a schema change, a lost answer, a second mirror",
    area="Other writers",
    on="Iceberg; catalogs: JDBC on SQLite and PostgreSQL, REST server, Hive metastore; events by hand",
    outcome="the batch is repeated, rows are exact, and the second mirror stops",
)
def test_mirror_on_every_catalog(lake: CatalogLake) -> None:
    added = (*COLUMNS, ColumnSpec("note", "varchar"))
    altered = schema_change_event(Place(1, 200), "orders", added, ["id"], kind="ALTER")
    lake.write(
        [
            DEFINITION,
            created(1),
            created(2),
            event("u", 150, before={"id": 1, "name": "new"}, after={"id": 1, "name": "changed"}),
            event("d", 160, before={"id": 2, "name": "new"}),
            Record("shop", 0, None, altered),
            event("c", 210, after={"id": 3, "name": "new", "note": "added"}),
            event("c", 220, after={"id": 4, "name": "new", "note": "again"}),
        ]
    )
    first, second = lake.mirror(), lake.mirror()
    first.advance({ORDERS: {0: 2}})
    disturbed: list[str] = []

    def disturb(point: str) -> None:
        if point == "before-commit" and not disturbed:
            disturbed.append(point)
            for namespace in (lake.namespace, f"{lake.namespace}_changes"):
                table = first.context.lake.load(namespace, "orders")
                assert table is not None
                set_properties(table, {"somebody": "else"})

    with failpoints.on_reach(disturb):
        first.advance({ORDERS: {0: 4}})
    assert disturbed
    with pytest.raises(FencedError, match="another process writes"):
        second.advance({ORDERS: {0: 5}})
    if lake.server.proxy is not None:
        lake.lose_answer()

    def has_all() -> bool:
        # A schema change whose answer is lost is tried again later.
        first.advance({ORDERS: {0: 6}})
        return len(lake.rows("orders")) == 3

    until(has_all, seconds=60, doing="the last changes")
    assert sorted(lake.rows("orders"), key=lambda row: row["id"]) == [
        {"id": 1, "name": "changed", "note": None},
        {"id": 3, "name": "new", "note": "added"},
        {"id": 4, "name": "new", "note": "again"},
    ]
    # The update has two rows.
    assert len(lake.rows("orders", f"{lake.namespace}_changes")) == 7
