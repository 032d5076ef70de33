"""Refreshes of pipelines, compared with what DuckDB computes of the source's rows at the same position."""

from replicator.pipelines.inputs.boundary import Boundary
from tests.oracle.model import Source
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, oracle, rows_at

BUCKETS = """
-- key: bucket
SELECT number % 5 AS bucket, count(*) AS n, sum(id) AS total, max(`a name`) AS last FROM shop.t0_bigint
GROUP BY number % 5
"""
BUCKETS_DUCK = """
SELECT number % 5 AS bucket, count(*) AS n, sum(id)::bigint AS total, max("a name") AS last FROM shop.t0_bigint
GROUP BY number % 5
"""


def boundary(at: tuple[int, int]) -> Boundary:
    return Boundary(f"mysql-bin.{at[0]:06d}", at[1])


def test_result_is_what_its_query_computes_at_each_boundary(lake: LakeHarness) -> None:
    source = Source(7, alters=0, truncates=False, partitions=2)
    source.start(["bigint"], 30)
    pipelines = PipelineLake(lake)
    pipelines.define("buckets", BUCKETS)
    written = 0
    outcomes = []
    for _ in range(4):
        source.run(20)
        at = source.position
        source.run(5)
        lake.write(source.records[written:], partitions={source.tables[0].topic: 2})
        written = len(source.records)
        lake.catch_up()
        found = pipelines.refreshed(boundary(at))["buckets"]
        outcomes.append(str(found.outcome))
        print(found)
        assert pipelines.rows("buckets") == oracle(
            BUCKETS_DUCK, [("t0_bigint", source.tables[0], rows_at(source.tables[0], at))]
        )
    found = pipelines.refreshed()["buckets"]
    print(found)
    assert pipelines.rows("buckets") == oracle(
        BUCKETS_DUCK, [("t0_bigint", source.tables[0], rows_at(source.tables[0]))]
    )
    assert outcomes == ["built", "changed", "changed", "changed"]
