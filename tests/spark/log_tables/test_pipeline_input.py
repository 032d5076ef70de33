"""A pipeline reads a log table as a whole."""

from collections.abc import Callable

from replicator.pipelines.files import read_pipelines
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.refresh.refresh import Outcome, Refreshed
from replicator.pipelines.service import Pipelines
from tests.spark.log_tables.conftest import LogLake


def test_a_pipeline_counts_events(logs: Callable[..., LogLake]) -> None:
    clicks = logs(columns={"id": "long", "kind": "string"})
    config = clicks.config
    folder = config.pipelines.folder
    folder.mkdir()
    query = "SELECT kind, count(*) AS n FROM logs.clicks GROUP BY kind"
    (folder / "kinds.sql").write_text(f"-- key: kind\n-- refresh: full\n{query}\n")

    def refresh() -> Outcome:
        session = clicks.lake.session(config)
        pipelines = Pipelines.open(config, session, read_pipelines(config))
        [result] = pipelines.refresh(LogEnds(Boundary(), {}, "shop"))
        assert isinstance(result, Refreshed), result
        return result.outcome

    def counts() -> dict[str, int]:
        return {row["kind"]: row["n"] for row in clicks.lake.rows("kinds", "shop_pipelines")}

    clicks.send('{"id": 1, "kind": "view"}', '{"id": 2, "kind": "buy"}')
    clicks.appended()
    refresh()
    assert counts() == {"view": 1, "buy": 1}
    clicks.send('{"id": 3, "kind": "view"}')
    clicks.appended()
    refresh()
    assert counts() == {"view": 2, "buy": 1}
    assert refresh() is Outcome.SAME
