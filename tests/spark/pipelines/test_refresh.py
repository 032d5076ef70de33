"""Refreshes of pipelines, compared with what DuckDB computes of the source's rows at the same position."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from replicator import failpoints
from replicator.errors import LakeUnavailable
from replicator.lake.catalog.tables import LakeTable
from replicator.maintenance.plan import Step
from replicator.operations.maintain import maintain
from replicator.operations.status.read import read_status
from replicator.pipelines.checking import check_result
from replicator.pipelines.inputs import small_mirrors, states
from replicator.pipelines.inputs.log_ends import ends_reader
from replicator.pipelines.inputs.states import InputState
from replicator.pipelines.output import check_log
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.pipelines.service import NotRefreshed
from replicator.pipelines.status import list_pipelines
from replicator.runner.result_upkeep import ResultUpkeep
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, boundary, duck, oracle, rows_at

QUERIES = {
    "added": (
        "bucket",
        (
            "SELECT number % 5 AS bucket, count(*) AS n, sum(id) AS total, count(`a name`) AS named "
            "FROM shop.t0_bigint GROUP BY number % 5"
        ),
    ),
    "touched": (
        "bucket",
        (
            "SELECT number % 5 AS bucket, max(id) AS highest, min(`a name`) AS first, "
            "count(DISTINCT number) AS several FROM shop.t0_bigint GROUP BY number % 5 HAVING count(*) > 1"
        ),
    ),
    "joined": (
        "id, code",
        (
            "SELECT a.id, b.`code``x` AS code, b.region, a.number FROM shop.t0_bigint a "
            "LEFT JOIN shop.t1_composite b ON b.region = a.number"
        ),
    ),
    "copies": ("", "SELECT page, number FROM shop.t2_keyless WHERE number > 0"),
    "newest": (
        "number",
        (
            "SELECT number, id FROM (SELECT number, id, row_number() OVER (PARTITION BY number ORDER BY id DESC) "
            "AS place FROM shop.t0_bigint) WHERE place = 1"
        ),
    ),
}
"""Name of a pipeline → its key and query."""


def define(pipelines: PipelineLake, *names: str) -> None:
    for name in names:
        key, query = QUERIES[name]
        pipelines.define(name, f"-- key: {key}\n{query}" if key else query)


def assert_exact(
    pipelines: PipelineLake, source: Source, names: Iterable[str], at: tuple[int, int] | None = None
) -> None:
    tables = [(table.name, table, rows_at(table, at)) for table in source.tables]
    for name in names:
        assert pipelines.rows(name) == oracle(duck(QUERIES[name][1]), tables), name


@pytest.mark.parametrize("stays", [False, True], ids=["other processes", "one process"])
def test_results_are_what_their_queries_compute_at_each_boundary(
    lake: LakeHarness, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint", "composite", "keyless"], 30)
    pipelines, round_ = PipelineLake(lake, stays=stays), Round(lake, source)
    define(pipelines, *QUERIES)
    read = counted_reads(monkeypatch)
    outcomes, reads = [], []
    for _ in range(4 if stays else 2):
        at = round_.write(transactions=25, later=6)
        outcomes.append({name: str(r.outcome) for name, r in pipelines.refreshed(boundary(at)).items()})
        assert_exact(pipelines, source, QUERIES, at)
        reads.append(list(read))
        read.clear()
    # Once a reader has asked for them, the process holds what it writes, and the rows that joins read.
    assert bool(reads[-1]) is not stays, reads
    outcomes.append({name: str(r.outcome) for name, r in pipelines.refreshed().items()})
    assert_exact(pipelines, source, QUERIES)
    assert set(outcomes[0].values()) == {"built"}
    assert outcomes[1]["added"] == "changed"
    assert all("built" not in outcome.values() for outcome in outcomes[1:])
    # Nothing changed since.
    assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"same"}


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the inputs whose changes or rows Spark reads, as it does."""
    found: list[str] = []
    images, rows = states._images, small_mirrors._read

    def noted(state: InputState, log: LakeTable) -> DataFrame:
        found.append(f"changes of {state.table.name}")
        return images(state, log)

    def rows_noted(state: InputState) -> pa.Table | None:
        found.append(f"rows of {state.table.name}")
        return rows(state)

    monkeypatch.setattr(states, "_images", noted)
    monkeypatch.setattr(small_mirrors, "_read", rows_noted)
    return found


def test_pipelines_wait_for_a_table_whose_columns_are_just_being_made(lake: LakeHarness) -> None:
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint"], 10)
    pipelines = PipelineLake(lake)
    Round(lake, source).write(transactions=5)
    define(pipelines, "added")
    table = pipelines.pipelines().lake.load("shop", "t0_bigint")
    assert table is not None
    own = table.property(COLUMNS_KEY)
    assert own is not None
    nothing = OwnColumns.of(table.schema_json(), names=()).to_json()
    table.java.updateProperties().set(COLUMNS_KEY, nothing).commit()
    (waiting,) = pipelines.refresh()
    assert isinstance(waiting, NotRefreshed)
    assert waiting.waits
    table.java.updateProperties().set(COLUMNS_KEY, own).commit()
    pipelines.refreshed()
    assert_exact(pipelines, source, ["added"])


def test_rows_that_were_just_read_are_used_at_the_end_of_an_idle_source(lake: LakeHarness) -> None:
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    define(pipelines, "added")
    at = boundary(round_.write(transactions=0))
    (waiting,) = pipelines.refresh(at)
    assert isinstance(waiting, NotRefreshed)
    assert waiting.waits
    pipelines.refreshed(replace(at, closed=True))
    assert_exact(pipelines, source, ["added"])
    later = round_.write(transactions=20, later=3)
    assert str(pipelines.refreshed(replace(boundary(later), closed=True))["added"].outcome) == "changed"
    assert_exact(pipelines, source, ["added"], later)


@pytest.mark.fault(
    "The process is killed while it refreshes the result of a pipeline",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the result has its rows from before or those from after; the next refresh continues from there",
)
@pytest.mark.parametrize(
    "point", ["after-pipeline-files", "before-pipeline-commit", "before-commit", "after-pipeline-commit"]
)
def test_killed_refresh_is_repeated_exactly_once(lake: LakeHarness, point: str) -> None:
    source = Source(5, alters=0, truncates=False)
    source.start(["bigint", "composite"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    names = ("added", "joined")
    define(pipelines, *names)

    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    for _ in ("when it is built", "when it is changed"):
        round_.write(transactions=20)
        with pytest.raises(PowerCut), failpoints.on_reach(reach):
            pipelines.refresh()
        pipelines.refreshed()
        assert_exact(pipelines, source, names)


def test_pipeline_that_fails_stops_only_those_that_read_its_result(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("wrong", "-- key: number\nSELECT number, id FROM shop.t0_bigint")
    pipelines.define("reader", "-- refresh: auto\nSELECT count(*) AS n FROM shop_pipelines.wrong")
    pipelines.define("right", "-- key: id\nSELECT id, number FROM shop.t0_bigint WHERE number >= 0")
    pipelines.define("circle", "SELECT n FROM shop_pipelines.circle")
    pipelines.define("behind", "-- refresh: auto\nSELECT count(*) AS n FROM shop_pipelines.circle")
    round_.write(transactions=20)
    found = {result.pipeline: result for result in pipelines.refresh()}
    circle, behind = found["circle"], found["behind"]
    assert isinstance(circle, NotRefreshed)
    assert "circle.sql:1:15: the pipeline circle reads its own result" in circle.reason
    assert isinstance(behind, NotRefreshed)
    assert behind.reason == "it reads shop_pipelines.circle, and the pipeline circle was not refreshed"
    assert [type(result) for result in pipelines.refresh(None, "behind")] == [NotRefreshed]
    for name in ("circle", "behind"):
        (pipelines.config.pipelines.folder / f"{name}.sql").unlink()
    wrong, reader = found["wrong"], found["reader"]
    assert isinstance(wrong, NotRefreshed)
    assert not wrong.waits
    assert "several rows have the key number" in wrong.reason
    assert isinstance(reader, NotRefreshed)
    assert reader.waits
    assert pipelines.rows("right").total() > 0
    pipelines.define("wrong", "-- key: id\nSELECT number, id FROM shop.t0_bigint")
    pipelines.refreshed()
    assert pipelines.rows("reader") == {(len(source.tables[0].rows),): 1}
    round_.write(transactions=20)
    pipelines.refreshed()
    assert pipelines.rows("reader") == {(len(source.tables[0].rows),): 1}


@pytest.mark.fault(
    "Files of one table are missing while results of pipelines are refreshed",
    area="Lake",
    on="Iceberg; events of the model",
    outcome="only the pipelines that read the table pause; they go on once the files are back",
)
def test_missing_files_stop_only_those_that_read_them(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint", "composite"], 20)
    pipelines = PipelineLake(lake)
    pipelines.define("lost", "-- changelog: true\n-- key: id\nSELECT id, number FROM shop.t0_bigint")
    pipelines.define("reader", "SELECT number FROM shop_pipelines.lost")
    pipelines.define("right", "SELECT region FROM shop.t1_composite")
    Round(lake, source).write(transactions=20)
    data = lake.folder / "lake" / "shop" / "t0_bigint" / "data"
    data.rename(data.with_suffix(".away"))
    for _ in range(2):
        found = {result.pipeline: result for result in pipelines.refresh(retry=False)}
        lost, reader = found["lost"], found["reader"]
        assert isinstance(lost, NotRefreshed)
        assert "cannot be computed" in lost.reason
        assert isinstance(reader, NotRefreshed)
        assert (lost.waits, reader.waits) == (False, True)
        assert isinstance(found["right"], Refreshed)
    shown = {status.name: (status.state, status.problem) for status in list_pipelines(pipelines.config)}
    assert shown["lost"] == ("paused", lost.reason)
    data.with_suffix(".away").rename(data)
    assert all(isinstance(result, Refreshed) for result in pipelines.refresh(retry=False))
    assert {status.state for status in list_pipelines(pipelines.config)} == {"current"}


def test_round_ends_once_the_catalog_does_not_answer(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, tried = PipelineLake(lake), []
    for name in ("first", "second"):
        pipelines.define(name, "SELECT id FROM shop.t0_bigint")
    Round(lake, source).write(transactions=5)
    ends, opened = ends_reader(pipelines.config)(), pipelines.pipelines()
    catalog = pipelines.config.lake.catalog_file
    assert catalog is not None
    tables = ("iceberg_tables", "iceberg_namespace_properties")

    def rename(old: str, new: str) -> None:
        with contextlib.closing(sqlite3.connect(catalog)) as database:
            for table in tables:
                database.execute(f"ALTER TABLE {table}{old} RENAME TO {table}{new}")

    def reach(reached: str) -> None:
        if reached == "before-pipeline-commit":
            rename("", "_away")

    with pytest.raises(LakeUnavailable), failpoints.on_reach(reach):
        opened.refresh(ends, on_pipeline=lambda name, *_: tried.append(name))
    assert len(tried) == 1
    rename("_away", "")
    pipelines.refreshed()
    assert pipelines.rows("first").total() == len(source.tables[0].rows)


def test_days_that_python_does_not_have_identify_rows(lake: LakeHarness) -> None:
    """MySQL has the year 0, and Spark years after 9999."""
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    day = "date_add(DATE '{}', CAST(number % 4 AS INT))"
    for name, first in {"early": "0000-06-01", "late": "9999-12-31"}.items():
        key = day.format(first)
        query = f"SELECT {key} AS day, count(*) AS n FROM shop.t0_bigint WHERE number >= 0 GROUP BY {key}"
        pipelines.define(name, f"-- key: day\n{query}")
    twice = f"SELECT {day.format('0000-06-01')} AS day, 1 AS n FROM shop.t0_bigint WHERE number = 0"
    pipelines.define("a_twice", f"-- key: day\n{twice} UNION ALL {twice}")
    for outcome in ("built", "changed"):
        round_.write(transactions=20)
        found = {result.pipeline: result for result in pipelines.refresh()}
        refused = found.pop("a_twice")
        assert isinstance(refused, NotRefreshed)
        assert "several rows have the key day = '0000-06-01'" in refused.reason
        assert {getattr(result, "outcome", None) for result in found.values()} == {outcome}
    numbers = [row["number"] for row in source.tables[0].rows.values()]
    counts = Counter(number % 4 for number in numbers if number is not None and number >= 0)
    opened = pipelines.pipelines()
    for name in ("early", "late"):
        rows = opened.lake.spark.table(f"lake.shop_pipelines.{name}").select("n").collect()
        assert Counter(row.n for row in rows) == Counter(counts.values())
        definition = next(d for d in opened.files.definitions if d.name == name)
        assert check_result(opened, definition).is_equal


def test_pipeline_whose_table_comes_later_is_refreshed_then(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines = PipelineLake(lake)
    pipelines.define("early", "-- key: id\nSELECT id, number FROM shop.t0_bigint")
    lake.write([])
    (early,) = pipelines.refresh(retry=False)
    assert isinstance(early, NotRefreshed)
    assert "no table shop.t0_bigint in the lake" in early.reason
    Round(lake, source).write(transactions=20)
    (early,) = pipelines.refresh(retry=False)
    assert isinstance(early, Refreshed), early


def test_changed_definition_replaces_the_result(lake: LakeHarness) -> None:
    source = Source(9, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("counted", "SELECT id, number FROM shop.t0_bigint WHERE number >= 0")
    round_.write(transactions=10)
    pipelines.refreshed()
    query = "SELECT number, count(*) AS n FROM shop.t0_bigint GROUP BY number"
    pipelines.define("counted", f"-- key: number\n{query}")

    def reach(reached: str) -> None:
        if reached == "between-pipeline-renames":
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        pipelines.refresh()
    pipelines.refreshed()
    assert pipelines.rows("counted") == oracle(
        query, [("t0_bigint", source.tables[0], rows_at(source.tables[0]))]
    )
    round_.write(transactions=10)
    assert str(pipelines.refreshed()["counted"].outcome) == "changed"
    assert pipelines.rows("counted") == oracle(
        query, [("t0_bigint", source.tables[0], rows_at(source.tables[0]))]
    )


def test_results_are_maintained_and_shown(lake: LakeHarness) -> None:
    source = Source(7, alters=0, truncates=False)
    source.start(["bigint"], 30)
    config = lake.config(maintenance={"merge_files": 3, "max_snapshots": 3, "slice_time": "1 hour"})
    pipelines, round_, name = PipelineLake(lake, config), Round(lake, source), "shop_pipelines.added"
    define(pipelines, "added")
    for _ in range(5):
        round_.write(transactions=15)
        pipelines.refreshed()
    due = {report.table: report.due for report in maintain(config, dry_run=True)}[name]
    assert {Step.MERGE_DATA, Step.EXPIRE} <= set(due)
    opened = pipelines.pipelines().lake
    ResultUpkeep(config).run(opened, [TableName("shop_pipelines", "added")])
    status = read_status(config)
    (maintained,) = (entry for entry in status.maintenance if entry.table == name)
    assert maintained.data_files < 3
    assert maintained.snapshots <= 4
    (shown,) = status.pipelines
    assert (shown.state, shown.rows) == ("current", pipelines.rows("added").total())
    assert shown.boundary
    assert status.to_json()["pipelines"][0]["table"] == name
    assert_exact(pipelines, source, ["added"])
    round_.write(transactions=15)
    assert str(pipelines.refreshed()["added"].outcome) == "changed"
    assert_exact(pipelines, source, ["added"])


def test_counts_of_checks_are_stored(lake: LakeHarness) -> None:
    source = Source(7, alters=0, truncates=False)
    source.start(["bigint"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    query = "SELECT id, number FROM shop.t0_bigint WHERE id IS NOT NULL"
    pipelines.define(
        "kept",
        f"-- key: id\n-- expect positive: number > 0, warn\n-- expect known: number <> 3, drop\n{query}",
    )
    pipelines.define("failing", f"-- key: id\n-- expect none: id < 0 AND id > 0, fail\n{query}")
    totals = Counter[str]()
    for _ in range(2):
        round_.write(transactions=20)
        refreshed = {result.pipeline: result for result in pipelines.refresh()}
        kept = refreshed["kept"]
        assert isinstance(kept, Refreshed)
        assert isinstance(refreshed["failing"], NotRefreshed)
        totals.update({check.name: check.failed for check in kept.checks})
        shown = {status.name: status for status in list_pipelines(pipelines.config)}
        assert [(c.name, c.action, c.rows, c.failed) for c in shown["kept"].checks] == [
            (c.name, str(c.action), c.rows, c.failed) for c in kept.checks
        ]
    assert {check.name: check.failed_in_day for check in shown["kept"].checks} == totals
    assert totals["known"]
    (failing,) = shown["failing"].checks
    rows = len(source.tables[0].rows)
    assert (failing.action, failing.rows, failing.failed) == ("fail", rows, rows)
    assert shown["failing"].rows is None
    assert len(lake.rows("pipeline_checks", "shop_ops")) == 2 * 2 + 2
    assert "shop_ops.pipeline_checks" in {report.table for report in maintain(pipelines.config, dry_run=True)}


def test_old_counts_of_checks_are_deleted(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(7, alters=0, truncates=False)
    source.start(["bigint"], 10)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("kept", "-- expect known: id > 0, warn\nSELECT id FROM shop.t0_bigint")
    monkeypatch.setattr(check_log, "_EXPIRE_EVERY", 2)
    monkeypatch.setattr(check_log, "KEPT", timedelta(0))
    for left in (1, 1, 2):
        round_.write(transactions=5)
        pipelines.refreshed()
        assert len(lake.rows("pipeline_checks", "shop_ops")) == left
