"""Results with changelogs: what reads them, and where their rows are."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from replicator import failpoints
from replicator.consumer.cursor import Cursor
from replicator.consumer.feed import changes
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.recent_changes import RecentChanges
from replicator.lake.rows.locations import ReadCost, RowLocationCache
from replicator.maintenance.history import STEP_KEY
from replicator.maintenance.plan import Step
from replicator.maintenance.small_merge import SmallMerge
from replicator.pipelines import service
from replicator.pipelines.held import held_rows
from replicator.pipelines.inputs import states
from replicator.pipelines.inputs.log_ends import ends_reader
from replicator.pipelines.inputs.states import InputState
from replicator.pipelines.output import places, small_results, writer
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.runner.result_upkeep import ResultUpkeep
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, boundary, duck, oracle, rows_at

STAGES = {
    "first": (
        "-- key: bucket\n-- changelog: true\n",
        "SELECT number % 5 AS bucket, count(*) AS n, sum(id) AS total FROM shop.t0_bigint GROUP BY number % 5",
    ),
    "second": (
        "-- key: n\n",
        "SELECT n, count(*) AS buckets, sum(total) AS total FROM shop_pipelines.first GROUP BY n",
    ),
    "bag": ("-- changelog: true\n", "SELECT page, number FROM shop.t1_keyless WHERE number > 0"),
    "pages": ("-- key: Page\n", "SELECT page, count(*) AS n FROM shop_pipelines.bag GROUP BY page"),
}
"""Name → header and query: two pipelines with a changelog, and those that read them."""


def assert_stages(pipelines: PipelineLake, source: Source, at: tuple[int, int] | None = None) -> None:
    tables = [(table.name, table, rows_at(table, at)) for table in source.tables]
    for name, (_, query) in STAGES.items():
        whole = query
        for other, (_, inner) in STAGES.items():
            whole = whole.replace(f"shop_pipelines.{other}", f"({inner}) AS {other}_")
        whole = duck(whole).replace("sum(total)", "sum(total)::bigint")
        assert pipelines.rows(name) == oracle(whole, tables), name


def consumed(lake: LakeHarness, start: Cursor | str, rows: Counter[tuple[object, ...]]) -> Cursor:
    """Apply what a consumer of the first result gets to its rows; return the cursor after it."""
    cursor = start
    for batch in changes(lake.config(), "shop_pipelines.first", start):
        cursor = batch.cursor
        for row in batch.rows.to_pylist():
            change = row.pop("_change", None)
            gone = change is not None and change["kind"] in ("UPDATE_BEFORE", "DELETE")
            rows[tuple(row.values())] += -1 if gone else 1
    assert isinstance(cursor, Cursor)
    return cursor


def test_rows_are_found_by_their_key_without_a_search(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is null in some rows, and maintenance moves rows to other files."""
    searches: list[str] = []

    def search(lake: Lake, table: LakeTable, *args: Any, **options: Any) -> pa.Table:
        searches.append(table.name)
        return searched(lake, table, *args, **options)

    searched = places.searched_positions
    monkeypatch.setattr(writer, "searched_positions", search)
    monkeypatch.setattr(service, "RowLocationCache", lambda *_: RowLocationCache(cost=ReadCost(0, 0)))
    source = Source(15, alters=0, truncates=False)
    source.start(["bigint"], 40)
    config = lake.config(maintenance={"merge_files": 2})
    files, round_ = PipelineLake(lake, config), Round(lake, source)
    query = "SELECT number, id, `a name` FROM shop.t0_bigint"
    files.define("keyed", f"-- key: number, id\n{query}")
    pipelines = files.pipelines()
    for number in range(5):
        round_.write(transactions=20)
        (result,) = pipelines.refresh(ends_reader(config)())
        assert isinstance(result, Refreshed)
        tables = [(table.name, table, rows_at(table, None)) for table in source.tables]
        assert files.rows("keyed") == oracle(duck(query), tables)
        if number in (2, 3):
            ResultUpkeep(config).run(pipelines.lake, [TableName("shop_pipelines", "keyed")])
    assert not searches
    table = pipelines.lake.load("shop_pipelines", "keyed")
    assert table is not None
    assert "replace" in {str(snapshot.operation()) for snapshot in table.java.snapshots()}


def test_rows_of_small_results_are_read_once(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def read(rows: DataFrame, tables: list[LakeTable]) -> pa.Table | None:
        reads.append(tables[0].name)
        return held_rows(rows, tables)

    monkeypatch.setattr(small_results, "held_rows", read)
    source = Source(16, alters=0, truncates=False)
    source.start(["bigint"], 40)
    files, round_ = PipelineLake(lake), Round(lake, source)
    for name in ("first", "second"):
        files.define(name, "".join(STAGES[name]))
    pipelines = files.pipelines()
    for number in range(6):
        round_.write(transactions=15)
        pipelines.refresh(ends_reader(files.config)())
        for name, key in (("first", ["bucket"]), ("second", ["n"])):
            table = pipelines.lake.load("shop_pipelines", name)
            assert table is not None
            held = pipelines.tables.small.rows(pipelines.lake, table, key)
            assert held is not None
            stored = rows_of(pipelines.lake, table).toArrow()
            assert held.schema == stored.schema
            assert sorted(map(str, held.to_pylist())) == sorted(map(str, stored.to_pylist()))
        if number == 2:
            upkeep = ResultUpkeep(lake.config(maintenance={"merge_files": 2}))
            upkeep.run(pipelines.lake, [TableName("shop_pipelines", "first")])
    assert Counter(reads) == {"first": 2, "second": 1}, "that of maintenance is another snapshot"


def test_files_of_results_stay_few_without_spark(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits absorb the small files of a result, and the driver merges those of its changelog."""
    source = Source(16, alters=0, truncates=False)
    source.start(["bigint", "keyless"], 40)
    config = lake.config(maintenance={"merge_files": 3})
    files, round_, upkeep = PipelineLake(lake, config, stays=True), Round(lake, source), ResultUpkeep(config)
    for name in ("first", "second", "bag"):
        files.define(name, "".join(STAGES[name]))
    files.define("pages", "".join(STAGES["pages"]))
    monkeypatch.setattr(service, "RowLocationCache", lambda *_: RowLocationCache(cost=ReadCost(0, 0)))
    pipelines = files.pipelines()
    names = [TableName(space, "first") for space in ("shop_pipelines", "shop_pipelines_changes")]
    for _ in range(8):
        at = round_.write(transactions=15, later=3)
        files.refreshed(boundary(at))
        assert_stages(files, source, at)
        upkeep.run(
            pipelines.lake, names, SmallMerge(pipelines.lake, pipelines.tables.index, pipelines.tables.files)
        )
    for written in names:
        table = pipelines.lake.load(written.namespace, written.name)
        assert table is not None
        count = int(table.java.currentSnapshot().summary().get("total-data-files"))
        assert count <= 4, written
        steps = {snapshot.summary().get(STEP_KEY) for snapshot in table.java.snapshots()}
        assert steps <= {None, str(Step.MERGE_SMALL)}
        assert (str(Step.MERGE_SMALL) in steps) is (written is names[1])


def test_changes_that_the_driver_holds_are_those_of_the_changelog(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def handed(state: InputState, changelog: LakeTable, recent: RecentChanges) -> pa.Table | None:
        if (held := hold(state, changelog, recent)) is not None:
            read = states._images(state, changelog).toArrow()
            assert held.schema.types[:-1] == read.schema.types[:-1]
            assert sorted(map(str, held.to_pylist())) == sorted(map(str, read.to_pylist()))
            compared.append(str(state.table.name))
        return held

    hold = states._handed
    monkeypatch.setattr(states, "_handed", handed)
    source = Source(14, alters=0, truncates=False)
    source.start(["bigint", "keyless"], 30)
    pipelines, round_ = PipelineLake(lake, stays=True), Round(lake, source)
    values = (
        "id, number, `a name`, CAST(id AS DECIMAL(38, 3)) AS exact, CAST(number AS DOUBLE) AS real, id > 3 AS more, "
        "date_from_unix_date(id) AS day, timestamp_seconds(id) AS at, CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ) AS "
        "clock, CAST(`a name` AS BINARY) AS raw"
    )
    nested = "id, struct(id, `a name`) AS pair, array(number, NULL) AS list"
    pipelines.define("pages_in_all", "SELECT count(*) AS n FROM shop.t1_keyless")
    pipelines.define("spelt", "-- changelog: true\nSELECT id, upper(`a name`) AS name FROM shop.t0_bigint")
    pipelines.define("later", "SELECT id, name FROM shop_pipelines.spelt")
    for name, columns in (("typed", values), ("nested", nested)):
        pipelines.define(name, f"-- changelog: true\nSELECT {columns} FROM shop.t0_bigint")
        pipelines.define(f"{name}_copy", f"SELECT * FROM shop_pipelines.{name}")
    whole = "-- refresh: full\n-- changelog: true\nSELECT count(*) * 0 AS same FROM shop.t0_bigint"
    pipelines.define("whole", whole)
    pipelines.define("whole_copy", "SELECT * FROM shop_pipelines.whole")
    for name, (header, query) in STAGES.items():
        pipelines.define(name, header + query)
    often = [found.name for found in pipelines.pipelines().files.definitions if found.name != "later"]
    for number, transactions in enumerate((20, 20, 10, 10, 10)):
        at = round_.write(transactions=transactions, later=5)
        # One that comes less often lacks the changes of several commits.
        if number % 2:
            pipelines.refresh(boundary(at), *often)
        else:
            pipelines.refreshed(boundary(at))
            assert pipelines.rows("later") == pipelines.rows("spelt")
        assert_stages(pipelines, source, at)
        for name in ("typed", "nested", "whole"):
            both = (lake.rows(each, "shop_pipelines") for each in (name, f"{name}_copy"))
            rows, copied = (sorted(map(str, found)) for found in both)
            assert rows == copied
    results = {f"shop_pipelines.{name}" for name in ("typed", "first", "bag")}
    assert set(compared) >= {"shop.t0_bigint", "shop.t1_keyless", *results}


@pytest.mark.fault(
    "The process is killed between the commits of a result's changelog and of the result",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the next refresh applies the changelog's last commit to the result, and continues",
)
@pytest.mark.parametrize(
    "point", ["between-pipeline-commits", "before-pipeline-commit", "after-pipeline-commit"]
)
def test_results_with_changelogs_are_read_by_what_changed(lake: LakeHarness, point: str) -> None:
    source = Source(12, alters=0, truncates=False)
    source.start(["bigint", "keyless"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    for name, (header, query) in STAGES.items():
        pipelines.define(name, header + query)
    at = round_.write(transactions=20, later=5)
    pipelines.refreshed(boundary(at))
    assert_stages(pipelines, source, at)
    rows = Counter[tuple[object, ...]]()
    cursor = consumed(lake, "mirror", rows)
    assert rows == pipelines.rows("first")

    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    round_.write(transactions=20)
    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        pipelines.refresh()
    round_.write(transactions=5)
    found = {name: str(result.outcome) for name, result in pipelines.refreshed().items()}
    assert "built" not in found.values()
    assert_stages(pipelines, source)
    cursor = consumed(lake, cursor, rows)
    assert +rows == pipelines.rows("first")
    # Computed as a whole in another way: the changelog goes on, and those that read it get the differences.
    header, query = STAGES["first"]
    pipelines.define("first", f"{header}{query.replace('count(*)', 'count(id)')}")
    round_.write(transactions=10)
    found = {name: str(result.outcome) for name, result in pipelines.refreshed().items()}
    assert found["first"] == "built"
    assert found["second"] != "built"
    assert_stages(pipelines, source)
    consumed(lake, cursor, rows)
    assert +rows == pipelines.rows("first")
