"""The number of files stays bounded, however many small batches there are."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from replicator.pipelines.query.names import TableName
from replicator.runner.result_upkeep import ResultUpkeep
from tests.spark.log_tables.conftest import LogLake

COMMITS = 40
HOURS = 4


def test_small_batches_leave_few_files(logs: Callable[..., LogLake]) -> None:
    clicks = logs(columns={"id": "long", "at": "timestamptz"}, event_time="at", partition="hour")
    tables, upkeep = clicks.open(), ResultUpkeep(clicks.config)
    began, most = datetime(2026, 11, 29, tzinfo=UTC), 0
    for number in range(COMMITS):
        moment = began + timedelta(hours=HOURS) * number / COMMITS
        clicks.send(f'{{"id": {number}, "at": "{moment.isoformat()}"}}')
        tables.catch_up()
        upkeep.run(tables.lake, [TableName("logs", "clicks")])
        with clicks.lake.catalog() as catalog:
            most = max(most, catalog.load_table(("logs", "clicks")).inspect.files().num_rows)
    assert clicks.values("id") == list(range(COMMITS))
    # Of each partition, fewer files than are merged; and those of one merge are not counted again.
    assert most < HOURS + 2 * clicks.config.maintenance.merge_files
