"""Results compared with their queries, corrected, and computed as of earlier moments."""

import threading
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.errors import UnsupportedChange, UsageError
from replicator.lake.catalog.exact_commit import set_properties
from replicator.lake.files.spark_tables import rows_of
from replicator.model.moments import parse_as_of
from replicator.operations.rebuild.results import compute_as_of
from replicator.pipelines.checked import RECOMPUTED, last_recomputed
from replicator.pipelines.checking import Checked, _correct, check_result
from replicator.pipelines.costs import COSTS_KEY, Costs
from replicator.pipelines.inputs.tables import recorded_result
from replicator.pipelines.output.changelog import ResultChangelog
from replicator.pipelines.query.names import TableName
from replicator.pipelines.status import list_pipelines
from replicator.runner import result_checks
from replicator.runner.result_checks import ResultChecks
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, oracle, rows_at

FIRST_NAME = TableName("shop_pipelines", "first")
FIRST = "SELECT number % 5 AS bucket, count(*) AS n, sum(id) AS total FROM shop.t0_bigint GROUP BY number % 5"
SECOND = "SELECT n, count(*) AS buckets FROM {} GROUP BY n"


def defined(lake: LakeHarness, source: Source) -> tuple[PipelineLake, Round]:
    """Return pipelines: one with a changelog, and one that reads its result."""
    source.start(["bigint"], 30)
    pipelines = PipelineLake(lake)
    pipelines.define("first", f"-- key: bucket\n-- changelog: true\n{FIRST}")
    pipelines.define("second", f"-- key: n\n{SECOND.format('shop_pipelines.first')}")
    return pipelines, Round(lake, source)


def expected(source: Source, query: str, at: tuple[int, int] | None = None) -> Counter[tuple[object, ...]]:
    (table,) = source.tables
    return oracle(query.replace("sum(id)", "sum(id)::bigint"), [(table.name, table, rows_at(table, at))])


def check(pipelines: PipelineLake, name: str, *, repair: bool = False) -> Checked:
    opened = pipelines.pipelines()
    definition = next(d for d in opened.files.definitions if d.name == name)
    return check_result(opened, definition, repair=repair)


def damage(lake: LakeHarness, pipelines: PipelineLake) -> None:
    spark = lake.session(pipelines.config)
    spark.sql("DELETE FROM lake.shop_pipelines.first WHERE bucket = 1")
    spark.sql("UPDATE lake.shop_pipelines.first SET total = total + 1 WHERE bucket = 2")


def assert_right(pipelines: PipelineLake, source: Source) -> None:
    assert pipelines.rows("first") == expected(source, FIRST)
    assert pipelines.rows("second") == expected(source, SECOND.format(f"({FIRST})"))


def test_repaired_result_has_its_rows_and_readers_of_its_changelog_stay_right(lake: LakeHarness) -> None:
    source = Source(12, alters=0, truncates=False)
    pipelines, round_ = defined(lake, source)
    round_.write(transactions=20)
    pipelines.refreshed()
    assert check(pipelines, "first").is_equal
    damage(lake, pipelines)
    found = check(pipelines, "first")
    assert (found.missing, found.extra, found.repaired) == (2, 1, False)
    assert check(pipelines, "first", repair=True).repaired
    # What others changed was never in the changelog, so the correction is not either.
    assert not lake.rows("first", "shop_pipelines_changes")
    assert_right(pipelines, source)
    round_.write(transactions=10)
    outcomes = {name: str(result.outcome) for name, result in pipelines.refreshed().items()}
    assert outcomes == {"first": "changed", "second": "changed"}
    assert_right(pipelines, source)


@pytest.mark.fault(
    "The process is killed while it corrects the result of a pipeline",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the next refresh or check applies the changelog's last commit to the result, and continues",
)
def test_correction_reaches_those_that_read_the_changelog(lake: LakeHarness) -> None:
    source = Source(12, alters=0, truncates=False)
    pipelines, round_ = defined(lake, source)
    round_.write(transactions=20)
    pipelines.refreshed()
    wrong(pipelines)
    pipelines.refreshed()
    assert pipelines.rows("second") != expected(source, SECOND.format(f"({FIRST})"))

    def reach(point: str) -> None:
        if point == "between-pipeline-commits":
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        check(pipelines, "first", repair=True)
    # It was complete in the changelog, and is applied from there.
    assert check(pipelines, "first", repair=True).is_equal
    assert {row["_change"]["op"] for row in lake.rows("first", "shop_pipelines_changes")} == {"h"}
    outcomes = {name: str(result.outcome) for name, result in pipelines.refreshed().items()}
    assert outcomes == {"first": "same", "second": "changed"}
    assert_right(pipelines, source)


def wrong(pipelines: PipelineLake) -> None:
    """Remove rows of the first result and of its readers, as a defect of refreshes would."""
    opened = pipelines.pipelines()
    table = opened.tables.load(FIRST_NAME)
    assert table is not None
    record = recorded_result(table)
    assert record is not None
    table, log = ResultChangelog(opened.tables, FIRST_NAME).settled(table)
    assert table is not None
    removed = rows_of(opened.lake, table).where("bucket = 1").withColumn("_weight", F.lit(-1))
    _correct(opened.tables, table, log, record, removed)


def test_results_are_computed_as_of_an_earlier_moment(lake: LakeHarness) -> None:
    source = Source(12, alters=0, truncates=False)
    pipelines, round_ = defined(lake, source)
    start = source.position
    at = round_.write(transactions=20)
    round_.write(transactions=20)
    pipelines.refreshed()
    opened = pipelines.pipelines()
    results = dict(zip(("first", "second"), opened.files.definitions, strict=True))
    moment = parse_as_of(f"mysql-bin.{at[0]:06d}:{at[1] - 1}")
    for name, query in (("first", FIRST), ("second", SECOND.format(f"({FIRST})"))):
        done = compute_as_of(opened, results[name], moment, "shop_then")
        wanted = expected(source, query, at)
        assert (done.table, done.rows) == (f"shop_then.{name}", wanted.total())
        assert Counter(tuple(row.values()) for row in lake.rows(name, "shop_then")) == wanted
    assert pipelines.rows("first") == expected(source, FIRST)
    with pytest.raises(UsageError, match=r"shop_then\.first exists already"):
        compute_as_of(opened, results["first"], moment, "shop_then")
    early = parse_as_of(f"mysql-bin.{start[0]:06d}:{max(start[1] - 1, 0)}")
    with pytest.raises(UnsupportedChange, match="were read from the source after"):
        compute_as_of(opened, results["first"], early, "shop_early")
    # A changelog that lacks rows of the mirror does not tell them.
    lake.session(pipelines.config).sql("DELETE FROM lake.shop.t0_bigint WHERE number >= 0")
    with pytest.raises(UnsupportedChange, match="is not complete"):
        compute_as_of(opened, results["first"], moment, "shop_incomplete")


def test_results_are_checked_on_schedule(lake: LakeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(12, alters=0, truncates=False)
    _, round_ = defined(lake, source)
    pipelines = PipelineLake(
        lake, lake.config(pipelines={"check_every": "1 minute", "on_difference": "repair"})
    )
    round_.write(transactions=20)
    pipelines.refreshed()
    damage(lake, pipelines)
    monkeypatch.setattr(result_checks, "_LOOK_S", 0.1)
    # The catalog of a test is that of its session.
    monkeypatch.setattr(result_checks, "own_session", lambda session: session)
    checks = ResultChecks(pipelines.config, lake.session(pipelines.config), every=0.0)
    tell, told = checks._tell, list[Checked]()
    # It must not look for ever if a check fails.
    ending = threading.Timer(60, checks._thread.stopping.set)
    ending.start()

    def note(opened: object, checked: Checked, seconds: float) -> None:
        tell(opened, checked, seconds)  # type: ignore[arg-type]
        told.append(checked)
        if len(told) == 2:
            checks._thread.stopping.set()

    monkeypatch.setattr(checks, "_tell", note)
    checks._thread._run()
    ending.cancel()
    assert [(c.pipeline, c.is_equal, c.repaired) for c in told] == [
        ("first", False, True),
        ("second", True, False),
    ]
    assert pipelines.rows("first") == expected(source, FIRST)
    with lake.catalog() as catalog:
        assert set(last_recomputed(catalog, "shop_ops")) == {"first", "second"}
    shown = {status.name: status.checks for status in list_pipelines(pipelines.config)}
    assert [(c.name, c.failed) for c in shown["first"]] == [(RECOMPUTED, 3)]


def test_auto_computes_as_a_whole_what_took_less_time_so(lake: LakeHarness) -> None:
    source = Source(12, alters=0, truncates=False)
    source.start(["bigint"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("first", f"-- key: bucket\n-- refresh: auto\n{FIRST}")
    outcomes = []
    for slow in (False, False, True, False):
        round_.write(transactions=10)
        if slow:
            opened = pipelines.pipelines()
            table = opened.tables.load(TableName("shop_pipelines", "first"))
            assert table is not None
            known = Costs.from_json(table.property(COSTS_KEY) or "")
            assert known.whole
            assert known.changes
            costs = replace(known, whole=(10,), changes=((1, 60_000),))
            set_properties(table, {COSTS_KEY: costs.to_json()})
        result = pipelines.refreshed()["first"]
        outcomes.append((str(result.outcome), "would take about" in (result.reason or "")))
        assert pipelines.rows("first") == expected(source, FIRST)
    assert outcomes[:3] == [("built", False), ("changed", False), ("built", True)]
    (shown,) = list_pipelines(pipelines.config)
    assert shown.refresh == "auto"
    assert shown.seconds_whole
    assert shown.seconds_changes
