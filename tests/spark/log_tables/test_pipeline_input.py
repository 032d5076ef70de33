"""Pipelines over log tables: their results are what their queries compute of the rows that the log table has."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from replicator.errors import ConnectError, ReplicatorError, Unsettled, UnsupportedChange, UsageError
from replicator.lake.tags import TagStore
from replicator.maintenance.steps import Maintenance
from replicator.model.moments import parse_as_of
from replicator.model.tags import TagPoint, TagRecord, TagState
from replicator.operations.rebuild.results import compute_as_of
from replicator.pipelines import held
from replicator.pipelines.checking import Checked, check_result
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.inputs.recent_ends import RecentEnds
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.pipelines.rounds import refresh_as_reached, refresh_when_reached
from replicator.pipelines.service import NotRefreshed, Result
from replicator.pipelines.status import list_pipelines, show_pipeline
from replicator.pipelines.tag_stops import TagStops
from replicator.runner.pipelines import refresh_to_tags
from replicator.runner.result_upkeep import ResultUpkeep
from tests.oracle.compare import tagged_rows
from tests.oracle.model import Source, SourceTable
from tests.spark.log_tables.conftest import TOPIC, LogLake
from tests.support.failpoints import PowerCut, power_cut
from tests.support.pipeline_duckdb import duck
from tests.support.pipeline_lake import PipelineLake, Round, rows_at

Logs = Callable[..., LogLake]
CLICKS = TableName("logs", "clicks")
COLUMNS = {"id": "long", "kind": "string", "amount": "long", "at": "timestamptz", "device": {"os": "string"}}
NOW = datetime(2026, 11, 29, 10, 30, tzinfo=UTC)
PER_KIND = "-- key: kind\nSELECT kind, count(*) AS n, sum(amount) AS total FROM logs.clicks GROUP BY kind"
QUERIES = {
    "per_kind": (
        "-- key: kind\nSELECT kind, count(*) AS n, sum(amount) AS total, max(amount) AS most, min(at) AS first "
        "FROM logs.clicks GROUP BY kind"
    ),
    "per_hour": (
        "-- key: hour, os\nSELECT date_trunc('HOUR', at) AS hour, device.os AS os, count(*) AS n FROM logs.clicks "
        "GROUP BY date_trunc('HOUR', at), device.os"
    ),
    "clean": "-- changelog: true\nSELECT id, upper(kind) AS kind, amount FROM logs.clicks WHERE amount > 0",
    "over": (
        "-- key: kind\nSELECT kind, count(*) AS n, sum(amount) AS total FROM shop_pipelines.clean GROUP BY kind"
    ),
    "once": (
        "-- key: id\nSELECT id, kind FROM (SELECT id, kind, row_number() OVER (PARTITION BY id ORDER BY "
        "kafka_partition, kafka_offset) AS place FROM logs.clicks) WHERE place = 1"
    ),
}
"""Name of a pipeline → its file."""
READ_BY = {"over": "clean", "by_hour": "visits"}
"""Name of a pipeline → the one whose result it reads."""


@dataclass
class LogPipelines(PipelineLake):
    """Pipelines over the log table of one test, and over mirrors of the same lake."""

    clicks: LogLake = field(kw_only=True)

    @classmethod
    def of(cls, clicks: LogLake, **files: str) -> "LogPipelines":
        pipelines = cls(clicks.lake, clicks.config, clicks=clicks)
        for name, text in files.items():
            pipelines.define(name, text)
        return pipelines

    def refresh(
        self, boundary: Boundary | None = None, *names: str, rebuild: Sequence[str] = (), retry: bool = True
    ) -> list[Result]:
        ends = LogEnds(boundary or Boundary(), {}, "shop")
        return self.pipelines().refresh(ends, names, rebuild=rebuild, retry=retry)

    def outcomes(self) -> dict[str, str]:
        return {name: str(result.outcome) for name, result in self.refreshed().items()}

    def check(self, name: str) -> Checked:
        opened = self.pipelines()
        definition = next(d for d in opened.files.definitions if d.name == name)
        return check_result(opened, definition)

    def expected(self, name: str, mirrors: Sequence[tuple[SourceTable, Boundary]] = ()) -> Counter[Any]:
        """Return what DuckDB computes of the rows that the log table has."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA logs; CREATE SCHEMA shop_pipelines")
            given = pa.Table.from_pylist(self.clicks.rows())
            connection.register("given", given)
            connection.execute("CREATE TABLE logs.clicks AS SELECT * FROM given")
            connection.execute("CREATE SCHEMA shop")
            for table, at in mirrors:
                number = int((at.file or "").rpartition(".")[2])
                kept = [{k: row[k] for k in ("id", "number")} for row in rows_at(table, (number, at.pos))]
                connection.register("mirrored", pa.Table.from_pylist(kept))
                connection.execute(f'CREATE TABLE shop."{table.name}" AS SELECT * FROM mirrored')
            folder = self.config.pipelines.folder
            if (read := READ_BY.get(name)) is not None:
                text = (folder / f"{read}.sql").read_text()
                connection.execute(f"CREATE TABLE shop_pipelines.{read} AS {query(text)}")
            return Counter(connection.execute(query((folder / f"{name}.sql").read_text())).fetchall())


def query(text: str) -> str:
    return duck("\n".join(line for line in text.splitlines() if not line.startswith("--")))


def event(number: int, kind: str | None = "view", amount: int | None = 1, moment: datetime = NOW) -> str:
    shown = "null" if kind is None else f'"{kind}"'
    return (
        f'{{"id": {number}, "kind": {shown}, "amount": {"null" if amount is None else amount}, '
        f'"at": "{moment.isoformat()}", "device": {{"os": "os{number % 2}"}}}}'
    )


def events(chance: random.Random, most: int) -> list[str]:
    return [
        event(
            chance.randint(0, 30),
            chance.choice(["view", "buy", None]),
            chance.choice([None, chance.randint(-5, 90)]),
            NOW + timedelta(minutes=chance.randint(-300, 300)),
        )
        for _ in range(chance.randint(0, most))
    ]


def clicks_of(logs: Logs, **settings: Any) -> LogLake:
    return logs(columns=COLUMNS, event_time="at", partition="hour", **settings)


@pytest.mark.parametrize("driver_max_events", [10_000, 0])
def test_results_are_what_their_queries_compute_after_each_batch(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, driver_max_events: int
) -> None:
    if not driver_max_events:
        # Nor does the driver hold what was appended.
        monkeypatch.setattr(held, "MOST_ROWS", 2)
    clicks = logs(
        {"driver_max_events": driver_max_events}, columns=COLUMNS, event_time="at", partition="hour"
    )
    pipelines, chance = LogPipelines.of(clicks, **QUERIES), random.Random(7)
    config = clicks.lake.config(maintenance={"merge_files": 2})
    clicks.send(*events(chance, 20), event(0))
    clicks.appended()
    assert set(pipelines.outcomes().values()) == {"built"}
    for number in range(2):
        for _ in range(2):
            clicks.send(*events(chance, 8), event(number), partition=chance.randint(0, 1))
            clicks.appended()
        if number == 0:
            # Merged files have the same rows, those that are new and others.
            ResultUpkeep(config).run(pipelines.pipelines().lake, [CLICKS])
        outcomes = pipelines.outcomes()
        assert "built" not in outcomes.values(), outcomes
        for name in QUERIES:
            assert pipelines.rows(name) == pipelines.expected(name), name
    assert set(pipelines.outcomes().values()) == {"same"}


def test_log_tables_are_joined_with_mirrors_at_their_boundary(logs: Logs) -> None:
    clicks = clicks_of(logs)
    source = Source(11, alters=0, truncates=False)
    source.start(["bigint"], 30)
    round_ = Round(clicks.lake, source)
    joined = "SELECT c.id, c.kind, r.number FROM logs.clicks c {} JOIN shop.t0_bigint r ON r.id = c.id"
    pipelines = LogPipelines.of(
        clicks,
        inner=joined.format(""),
        outer=joined.format("LEFT"),
        visits=(
            "-- changelog: true\n-- partition: days(at)\nSELECT DISTINCT c.id, c.at, lower(c.kind) AS kind, r.number "
            "FROM logs.clicks c JOIN shop.t0_bigint r ON r.id = c.id WHERE c.id IS NOT NULL"
        ),
        by_hour=(
            "-- key: hour, number\nSELECT date_trunc('HOUR', at) AS hour, number, count(*) AS visits, "
            "count_if(kind = 'view') AS views FROM shop_pipelines.visits GROUP BY date_trunc('HOUR', at), number"
        ),
    )
    chance = random.Random(3)
    for number in range(3):
        at = round_.write(transactions=20, later=5)
        keys = [row["id"] for row in rows_at(source.tables[0])]
        clicks.send(*(event(chance.choice([*keys, -1])) for _ in range(12)))
        clicks.appended()
        boundary = Boundary(f"mysql-bin.{at[0]:06d}", at[1])
        found = pipelines.refreshed(boundary)
        assert {str(r.outcome) for r in found.values()} == {"changed" if number else "built"}
        for name in found:
            wanted = pipelines.expected(name, [(source.tables[0], boundary)])
            assert pipelines.rows(name) == wanted, name


@pytest.mark.fault(
    "Kafka Connect does not answer, or has not confirmed a position, and pipelines read log tables",
    area="Log",
    on="Iceberg; topics in memory",
    outcome="results of log tables alone are refreshed; those of mirrors wait",
)
@pytest.mark.parametrize("error", [Unsettled, ConnectError])
def test_results_of_log_tables_alone_need_no_position(logs: Logs, error: type[ReplicatorError]) -> None:
    clicks, source = clicks_of(logs), Source(11, alters=0, truncates=False)
    source.start(["bigint"], 30)
    at = Round(clicks.lake, source).write(transactions=5)
    joined = "SELECT c.id, o.kind FROM logs.clicks c JOIN shop_pipelines.clean o ON o.id = c.id"
    pipelines = LogPipelines.of(
        clicks,
        clean=QUERIES["clean"],
        over=QUERIES["over"],
        joined=f"{joined} JOIN shop.t0_bigint r ON r.id = c.id",
    )

    def unknown() -> LogEnds:
        raise error("no position", "wait")

    def known() -> LogEnds:
        return LogEnds(Boundary(f"mysql-bin.{at[0]:06d}", at[1]), {}, "shop")

    answers = [unknown, known]

    def read() -> LogEnds:
        return answers.pop(0)()

    recent = RecentEnds(read)
    with pytest.raises(error):
        recent.update()
    for outcome in ("built", "changed", "same"):
        if outcome != "same":
            clicks.send(*(event(number, amount=number) for number in range(1, 9)))
            clicks.appended()
        if outcome == "changed":
            found = refresh_as_reached(pipelines.pipelines(), recent)
        else:
            found = refresh_when_reached(pipelines.pipelines(), unknown, wait=0)
        assert {r.pipeline: str(r.outcome) for r in found if isinstance(r, Refreshed)} == {
            "clean": outcome,
            "over": outcome,
        }
        (waiting,) = (r for r in found if isinstance(r, NotRefreshed))
        assert (waiting.pipeline, waiting.reason, waiting.waits) == ("joined", "no position", True)
        for name in ("clean", "over"):
            assert pipelines.rows(name) == pipelines.expected(name), name
    # Results that were refreshed without a position do not hold up the others.
    recent.update()
    found = refresh_as_reached(pipelines.pipelines(), recent)
    assert all(isinstance(result, Refreshed) for result in found), found
    # Nothing but log tables is wanted: the others are not waited for.
    assert len(refresh_when_reached(pipelines.pipelines(), unknown, ["over"], wait=60)) == 2
    (pipelines.config.pipelines.folder / "over.sql").unlink()
    pipelines.define("clean", "SELECT id, number AS kind FROM shop.t0_bigint")
    opened = pipelines.pipelines()
    with pytest.raises(error):
        refresh_when_reached(opened, unknown, wait=0)
    pipelines.define("clean", QUERIES["clean"])
    for _ in range(2):
        found = refresh_when_reached(pipelines.pipelines(), known, wait=0)
        assert all(isinstance(result, Refreshed) for result in found), found


@pytest.mark.fault(
    "The process is killed while it refreshes the result of a pipeline over a log table",
    area="Process",
    on="Iceberg; topics in memory",
    outcome="the result has each event once",
)
@pytest.mark.parametrize(
    "point",
    [
        "after-pipeline-files",
        "before-pipeline-commit",
        "between-pipeline-commits",
        "before-commit",
        "after-pipeline-commit",
    ],
)
def test_killed_refresh_reads_each_event_once(logs: Logs, point: str) -> None:
    clicks = clicks_of(logs)
    files = {"clean": QUERIES["clean"], "over": f"-- changelog: true\n{QUERIES['over']}"}
    pipelines = LogPipelines.of(clicks, **files)
    clicks.send(event(1))
    clicks.appended()
    pipelines.refreshed()
    for number in range(2):
        clicks.send(event(number), event(number, "buy"))
        clicks.appended()
        with pytest.raises(PowerCut), power_cut(1 + number % 2, point):
            pipelines.refresh()
        clicks.send(event(10 + number))
        clicks.appended()
        assert "built" not in pipelines.outcomes().values()
        for name in ("clean", "over"):
            assert pipelines.rows(name) == pipelines.expected(name), name


def expire(pipelines: LogPipelines, clicks: LogLake) -> None:
    """Expire all snapshots of the log table but the newest."""
    lake = pipelines.pipelines().lake
    table = lake.load("logs", "clicks")
    assert table is not None
    settings = clicks.lake.config(maintenance={"max_snapshots": 1}).maintenance
    Maintenance(lake, table, settings)._expire()


def test_rows_that_retention_deletes_leave_the_result(logs: Logs) -> None:
    today = datetime.now(UTC)
    clicks = logs(columns=COLUMNS, event_time="at", partition="day", retention="2 days")
    pipelines = LogPipelines.of(
        clicks,
        removed=PER_KIND,
        kept=PER_KIND.replace("-- key: kind", "-- key: kind\n-- keep_expired: true"),
    )
    tables = clicks.open()
    clicks.send(
        event(1, moment=today), event(2, moment=today - timedelta(days=9)), event(3, "buy", moment=today)
    )
    tables.catch_up()
    pipelines.refreshed()
    assert tables.expire() == {"logs.clicks": 1}
    # Its snapshot may expire although no event comes.
    assert pipelines.outcomes() == {"removed": "built", "kept": "same"}
    expire(pipelines, clicks)
    clicks.send(event(4, moment=today))
    tables.catch_up()
    assert pipelines.outcomes() == {"removed": "changed", "kept": "changed"}
    assert (
        pipelines.rows("removed") == pipelines.expected("removed") == Counter([("view", 2, 2), ("buy", 1, 1)])
    )
    assert pipelines.rows("kept") == Counter([("view", 3, 3), ("buy", 1, 1)])
    assert pipelines.check("removed").is_equal
    with pytest.raises(UsageError, match="keeps rows that were deleted from logs"):
        pipelines.check("kept")
    # As a whole, it would lose them.
    pipelines.define(
        "kept", PER_KIND.replace("-- key: kind", "-- keep_expired: true").replace("sum", "count")
    )
    results = {result.pipeline: result for result in pipelines.refresh()}
    refused = results["kept"]
    assert isinstance(refused, NotRefreshed)
    assert (
        "may have rows that logs.clicks lacks now, which would be lost (its definition changed)"
        in refused.reason
    )
    assert pipelines.rows("kept") == Counter([("view", 3, 3), ("buy", 1, 1)])
    pipelines.refreshed(rebuild=["kept"])
    assert pipelines.rows("kept") == pipelines.expected("kept")
    assert pipelines.check("kept").is_equal


def test_what_is_new_is_known_by_offsets_once_snapshots_have_expired(logs: Logs) -> None:
    clicks = clicks_of(logs)
    kept = PER_KIND.replace("-- key: kind", "-- key: kind\n-- keep_expired: true")
    pipelines = LogPipelines.of(clicks, per_kind=PER_KIND, kept=kept)
    clicks.send(event(1))
    clicks.send(event(2), partition=2)
    clicks.appended()
    pipelines.refreshed()
    for partition in range(5):
        # Partitions between others, and after them, are new.
        clicks.send(event(partition), partition=partition)
        clicks.appended()
    expire(pipelines, clicks)
    assert pipelines.check("per_kind").is_equal
    assert {(str(r.outcome), r.changes) for r in pipelines.refreshed().values()} == {("changed", 5)}
    for name in ("per_kind", "kept"):
        assert pipelines.rows(name) == pipelines.expected(name)
    clicks.send(event(9))
    clicks.appended()
    clicks.lake.session(clicks.config).sql("DELETE FROM lake.logs.clicks WHERE id = 1")
    clicks.send(event(10))
    clicks.appended()
    expire(pipelines, clicks)
    assert {name: r.reason for name, r in pipelines.refreshed().items()} == {
        "per_kind": "logs.clicks: rows of it were deleted",
        "kept": None,
    }
    assert pipelines.rows("per_kind") == pipelines.expected("per_kind") == Counter([("view", 7, 7)])
    assert pipelines.rows("kept") == Counter([("view", 9, 9)])


def test_result_is_computed_as_a_whole_if_the_log_table_does_not_tell_what_is_new(logs: Logs) -> None:
    clicks = clicks_of(logs)
    pipelines = LogPipelines.of(clicks, per_kind=PER_KIND)
    clicks.send(event(1))
    clicks.appended()
    pipelines.refreshed()
    topic = clicks.topics.topic(TOPIC)
    # Its offsets begin again.
    topic.id, topic.records = "2", {}
    for number in range(2):
        clicks.send(event(number))
        clicks.appended()
    expire(pipelines, clicks)
    (result,) = pipelines.refreshed().values()
    assert (str(result.outcome), result.reason) == (
        "built",
        "logs.clicks: its snapshots since then have expired",
    )
    clicks.lake.session(clicks.config).sql("DELETE FROM lake.logs.clicks WHERE id = 0")
    (result,) = pipelines.refreshed().values()
    assert (str(result.outcome), result.reason) == ("built", "logs.clicks: rows of it were deleted")
    assert pipelines.rows("per_kind") == pipelines.expected("per_kind")
    clicks.send(event(5))
    clicks.appended()
    assert pipelines.outcomes() == {"per_kind": "changed"}


def test_results_over_log_tables_are_shown_and_checked(logs: Logs) -> None:
    clicks = clicks_of(logs)
    pipelines = LogPipelines.of(
        clicks, per_kind=PER_KIND, whole=PER_KIND.replace("-- key", "-- refresh: full\n-- key")
    )
    clicks.send(event(1))
    clicks.appended()
    pipelines.refreshed()
    clicks.send(event(2))
    clicks.appended()
    # Of the rows as they were, although there are more now.
    assert pipelines.check("per_kind").is_equal
    found = {entry.name: entry for entry in list_pipelines(clicks.config)}
    assert (found["per_kind"].state, found["per_kind"].rule) == ("current", "signed")
    assert found["per_kind"].reads == ("logs.clicks",)
    shown, *_ = show_pipeline(clicks.config, "per_kind")
    assert "  logs.clicks: its changes" in shown.plan
    result: Refreshed = pipelines.refreshed()["per_kind"]
    assert (str(result.outcome), result.changes) == ("changed", 1)
    opened = pipelines.pipelines()
    definition = next(d for d in opened.files.definitions if d.name == "per_kind")
    with pytest.raises(UnsupportedChange, match="is a log table"):
        compute_as_of(opened, definition, parse_as_of("2026-01-01T00:00:00Z"), "shop_then")


def test_several_log_tables_are_one_input(logs: Logs) -> None:
    clicks = clicks_of(logs)
    text = "-- key: _origin\nSELECT _origin, count(*) AS n FROM `logs.*` GROUP BY _origin"
    pipelines = LogPipelines.of(clicks, all_of_them=text, one=PER_KIND)
    assert [r.waits for r in pipelines.refresh() if isinstance(r, NotRefreshed)] == [True, True]
    clicks.send(event(1), event(2))
    clicks.appended()
    pipelines.refreshed()
    clicks.send(event(3))
    clicks.appended()
    assert pipelines.outcomes() == {"all_of_them": "changed", "one": "changed"}
    assert pipelines.rows("all_of_them") == Counter([("logs.clicks", 3)])


def test_results_of_log_tables_get_the_tags_of_mirrors_as_they_are(logs: Logs) -> None:
    clicks = clicks_of(logs)
    pipelines = LogPipelines.of(clicks, per_kind=PER_KIND)
    clicks.send(event(1), event(2, "buy"))
    clicks.appended()
    pipelines.refreshed()
    clicks.send(event(3))
    clicks.appended()
    point = TagPoint("mysql-bin.000001", 400, None, 1)
    opened = pipelines.pipelines()
    TagStore(opened.lake, opened.config.lake).write(TagRecord("noon", TagState.COMPLETE, 1, point=point))
    ends = LogEnds(Boundary(point.file, point.pos), {}, "shop")
    (result,) = refresh_to_tags(opened, lambda: ends, TagStops(), 60, None)
    assert isinstance(result, Refreshed)
    tagged = pipelines.expected("per_kind")
    clicks.send(event(4, "buy"))
    clicks.appended()
    pipelines.refreshed()
    with clicks.lake.catalog() as catalog:
        rows = tagged_rows(catalog.load_table(("shop_pipelines", "per_kind")), "noon")
    assert Counter((row["kind"], row["n"], row["total"]) for row in rows) == tagged
    assert pipelines.rows("per_kind") == pipelines.expected("per_kind") != tagged
    assert refresh_to_tags(opened, lambda: ends, TagStops(), 60, None) == []
