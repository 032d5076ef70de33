"""Refreshes of pipelines, compared with what DuckDB computes of the source's rows at the same position."""

import pytest

from replicator import failpoints
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.service import NotRefreshed
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, oracle, rows_at

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
            "SELECT number % 5 AS bucket, max(id) AS highest, min(`a name`) AS first, count(DISTINCT number) AS several "
            "FROM shop.t0_bigint GROUP BY number % 5 HAVING count(*) > 1"
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
            "SELECT number, id FROM (SELECT number, id, row_number() OVER (PARTITION BY number ORDER BY id DESC) AS place "
            "FROM shop.t0_bigint) WHERE place = 1"
        ),
    ),
}
"""Name of a pipeline → its key and query."""


def duck(query: str) -> str:
    return (
        query.replace("`code``x`", '"code`x"')
        .replace("`a name`", '"a name"')
        .replace("sum(id)", "sum(id)::bigint")
    )


def boundary(at: tuple[int, int]) -> Boundary:
    return Boundary(f"mysql-bin.{at[0]:06d}", at[1])


def define_all(pipelines: PipelineLake) -> None:
    for name, (key, query) in QUERIES.items():
        pipelines.define(name, f"-- key: {key}\n{query}" if key else query)


def assert_exact(pipelines: PipelineLake, source: Source, at: tuple[int, int] | None) -> None:
    tables = [(table.name, table, rows_at(table, at)) for table in source.tables]
    for name, (_, query) in QUERIES.items():
        assert pipelines.rows(name) == oracle(duck(query), tables), name


def test_results_are_what_their_queries_compute_at_each_boundary(lake: LakeHarness) -> None:
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint", "composite", "keyless"], 30)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    define_all(pipelines)
    outcomes = []
    for _ in range(3):
        at = round_.write(transactions=25, later=6)
        outcomes.append({name: str(r.outcome) for name, r in pipelines.refreshed(boundary(at)).items()})
        assert_exact(pipelines, source, at)
    outcomes.append({name: str(r.outcome) for name, r in pipelines.refreshed().items()})
    assert_exact(pipelines, source, None)
    assert set(outcomes[0].values()) == {"built"}
    assert all(outcome["added"] == "changed" for outcome in outcomes[1:3])
    assert all("built" not in outcome.values() for outcome in outcomes[1:])
    # Nothing changed since.
    assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"same"}


@pytest.mark.parametrize(
    "point", ["after-pipeline-files", "before-pipeline-commit", "before-commit", "after-pipeline-commit"]
)
def test_killed_refresh_is_repeated_exactly_once(lake: LakeHarness, point: str) -> None:
    source = Source(5, alters=0, truncates=False)
    source.start(["bigint", "composite", "keyless"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    define_all(pipelines)
    for _ in range(2):
        round_.write(transactions=20)

        def reach(reached: str) -> None:
            if reached == point:
                raise PowerCut

        with pytest.raises(PowerCut), failpoints.on_reach(reach):
            pipelines.refresh()
        pipelines.refreshed()
        assert_exact(pipelines, source, None)


def test_pipeline_that_fails_stops_only_those_that_read_its_result(lake: LakeHarness) -> None:
    source = Source(3, alters=0, truncates=False)
    source.start(["bigint"], 20)
    pipelines, round_ = PipelineLake(lake), Round(lake, source)
    pipelines.define("wrong", "-- key: number\nSELECT number, id FROM shop.t0_bigint")
    pipelines.define("reader", "-- refresh: auto\nSELECT count(*) AS n FROM shop_pipelines.wrong")
    pipelines.define("right", "-- key: id\nSELECT id, number FROM shop.t0_bigint WHERE number >= 0")
    round_.write(transactions=20)
    found = {result.pipeline: result for result in pipelines.refresh()}
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
