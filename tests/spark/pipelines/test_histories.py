"""Histories, compared with the versions that the source's changes make, and with its rows at positions."""

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from replicator import failpoints
from replicator.config import Config
from replicator.pipelines.checking import check_history
from replicator.pipelines.history.definition import histories_of
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.refresh.refresh import Outcome, Refreshed
from replicator.pipelines.results import result_tables, results_over
from replicator.pipelines.service import NotRefreshed
from replicator.pipelines.status import list_pipelines
from tests.oracle.compare import lake_value
from tests.oracle.model import Change, Row, Source, SourceTable
from tests.oracle.versions import is_valid_at, newest_rows, source_versions
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round, rows_at

ENDS = ("DELETE", "TRUNCATE")


def boundary(at: tuple[int, int]) -> Boundary:
    return Boundary(f"mysql-bin.{at[0]:06d}", at[1])


def with_histories(lake: LakeHarness, source: Source, **settings: Any) -> Config:
    tables = [{"name": f"shop.{table.name}", **settings} for table in source.tables if table.key]
    return lake.config(table=tables)


def as_text(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}={row.get(name)}" for name in sorted(names))


def in_lake(row: Row, table: SourceTable) -> dict[str, Any]:
    return {c.name: lake_value(c.kind, row[c.name]) for c in table.columns if c.name in row}


def found_versions(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> Counter[tuple[Any, ...]]:
    names = [c.name for c in table.columns]
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        version = row["_version"]
        end = None if version["to_file"] is None else (version["to_file"], version["to_pos"])
        assert row["is_current"] == (end is None) == (row["valid_to"] is None)
        found[as_text(row, names), (version["from_file"], version["from_pos"]), end] += 1
    return found


def assert_versions(
    rows: Sequence[Mapping[str, Any]], table: SourceTable, tracked: Sequence[str] | None = None
) -> None:
    names = [c.name for c in table.columns]
    wanted = Counter(
        (as_text(in_lake(v.row, table), names), v.first, v.end) for v in source_versions(table, tracked)
    )
    found = found_versions(rows, table)
    assert found == wanted, f"extra {found - wanted}, missing {wanted - found}"


def assert_appended(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    """Assert that there is a row for each change, in their order."""
    names = [c.name for c in table.columns]
    wanted = [
        (as_text({} if c.row is None else in_lake(c.row, table), names), (c.file, c.pos), c.kind in ENDS)
        for c in table.changes
        if c.kind != "UPDATE_BEFORE"
    ]
    ordered = sorted(
        rows, key=lambda r: (r["_version"]["commit"], r["_version"]["offset"], not r["is_deleted"])
    )
    found = [
        (as_text(row, names), (row["_version"]["file"], row["_version"]["pos"]), row["is_deleted"])
        for row in ordered
    ]
    assert Counter(found) == Counter(wanted)
    assert [place for _, place, _ in found] == [place for _, place, _ in wanted]


def assert_times(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    """Assert that at each time at most one version of a row is valid, without gaps at updates."""
    for key in {table.key_of(row) for row in rows}:
        own = sorted(
            (r for r in rows if table.key_of(r) == key), key=lambda r: r["_version"]["from_position"]
        )
        for before, after in pairwise(own):
            assert before["valid_from"] <= before["valid_to"] <= after["valid_from"]
            if before["_version"]["to_position"] == after["_version"]["from_position"]:
                assert before["valid_to"] == after["valid_from"]


def assert_rows_at(rows: Sequence[Mapping[str, Any]], table: SourceTable, at: tuple[int, int]) -> None:
    """Assert the law: the versions that are valid at a position are the rows of the source there."""
    names = [c.name for c in table.columns]
    valid = Counter(as_text(row, names) for row in rows if is_valid_at(row["_version"], at))
    wanted = Counter(as_text(in_lake(row, table), names) for row in rows_at(table, at))
    assert valid == wanted, f"at {at}: extra {valid - wanted}, missing {wanted - valid}"


@pytest.mark.parametrize("compressed", [False, True])
def test_versions_are_those_of_the_source_at_each_position(lake: LakeHarness, compressed: bool) -> None:
    source = Source(7, alters=0, gtids=True, compressed=compressed, numbered=compressed)
    source.start(["bigint", "composite"], 15)
    config = with_histories(lake, source, history="scd2")
    pipelines, round_ = PipelineLake(lake, config), Round(lake, source)
    places, outcomes = [], []
    for _ in range(3):
        at = round_.write(transactions=20, later=5)
        outcomes.append({str(r.outcome) for r in pipelines.refreshed(boundary(at)).values()})
        places.append(at)
    outcomes.append({str(r.outcome) for r in pipelines.refreshed().values()})
    assert outcomes[:3] == [{"built"}, {"changed"}, {"changed"}]
    # A table may have had no change since.
    assert "changed" in outcomes[3] <= {"changed", "same"}
    for table in source.tables:
        rows = lake.rows(table.name, "shop_history")
        assert_versions(rows, table)
        assert_times(rows, table)
        for at in {(int(c.file.rpartition(".")[2]), c.pos) for c in table.changes}:
            assert_rows_at(rows, table, at)
    assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"same"}


def test_deleted_rows_stay_with_the_time_when_they_were_deleted(lake: LakeHarness) -> None:
    source = Source(3, alters=0, gtids=True)
    source.start(["bigint"], 15)
    pipelines = PipelineLake(lake, with_histories(lake, source, history="soft_delete"))
    round_ = Round(lake, source)
    for _ in range(3):
        at = round_.write(transactions=25, later=5)
        pipelines.refreshed(boundary(at))
    pipelines.refreshed()
    (table,) = source.tables
    names = [c.name for c in table.columns]
    found = Counter(
        (as_text(row, names), row["deleted_at"] is not None) for row in lake.rows(table.name, "shop_history")
    )
    wanted = Counter((as_text(in_lake(row, table), names), gone) for row, gone in newest_rows(table))
    assert found == wanted, f"extra {found - wanted}, missing {wanted - found}"


def test_appended_rows_are_the_changes_and_are_never_written_again(lake: LakeHarness) -> None:
    source = Source(7, alters=0, gtids=True)
    source.start(["bigint", "composite"], 15)
    config = with_histories(lake, source, history="append")
    pipelines, round_, files = PipelineLake(lake, config), Round(lake, source), set[str]()
    for number in range(4):
        for table in source.tables if number == 2 else ():
            source._truncate(table)
        at = round_.write(transactions=20, later=5)
        with contextlib.suppress(PowerCut), power_cut(number + 1):
            pipelines.refreshed(boundary(at))
        pipelines.refreshed(boundary(at))
        with lake.catalog() as catalog:
            tables = [catalog.load_table(("shop_history", table.name)) for table in source.tables]
            written = {path for table in tables for path in table.inspect.files()["file_path"].to_pylist()}
        assert files <= written
        files = written
    pipelines.refreshed()
    for table, history in zip(source.tables, histories_of(config), strict=True):
        assert any(c.row is None for c in table.changes), "a TRUNCATE"
        assert_appended(lake.rows(table.name, "shop_history"), table)
        assert check_history(pipelines.pipelines(), history).is_equal


def record_rows(source: Source, transactions: int) -> None:
    """Execute transactions, and keep the rows after each of them among the changes, where renames reach them.

    The last one changes rows: an ALTER is followed with the next event.
    """
    alters, changes = source.alters, 0
    while transactions > 0 or not changes:
        transactions, before = transactions - 1, sum(len(table.changes) for table in source.tables)
        source.alters = alters if transactions > 0 else 0
        last = source.position
        source.run(1)
        if source.position == last:
            continue
        changes = sum(len(table.changes) for table in source.tables) - before
        file, pos = source.position
        place = f"mysql-bin.{file:06d}", pos, 0
        for table in source.tables:
            states = [Change("STATE", "", dict(row), *place) for row in table.rows.values()]
            table.changes += states or [Change("NONE", "", {}, *place)]
    source.alters = alters


def assert_rows_after_each(rows: Sequence[Mapping[str, Any]], table: SourceTable) -> None:
    """Assert the law for the rows that `record_rows` kept: with the columns that they had then, and have now."""
    kept = [c for c in table.changes if c.kind in ("STATE", "NONE")]
    assert len({c.place for c in kept}) > 10
    for (file, pos), states in groupby(kept, key=lambda c: (c.file, c.pos)):
        wanted_rows = [in_lake(c.row or {}, table) for c in states if c.kind == "STATE"]
        names = sorted({name for row in wanted_rows for name in row})
        after = (int(file.rpartition(".")[2]), pos + 1)
        valid = Counter(as_text(row, names) for row in rows if is_valid_at(row["_version"], after))
        wanted = Counter(as_text(row, names) for row in wanted_rows)
        assert valid == wanted, f"after {file}:{pos}: extra {valid - wanted}, missing {wanted - valid}"


def test_versions_are_the_rows_of_each_position_through_alters(lake: LakeHarness) -> None:
    source = Source(19, alters=15, gtids=True)
    source.start(["bigint"], 10)
    pipelines = PipelineLake(lake, with_histories(lake, source, history="scd2"))
    round_, outcomes = Round(lake, source), set()
    for _ in range(3):
        record_rows(source, 12)
        round_.write(transactions=0)
        outcomes |= {r.reason for r in pipelines.refreshed().values()}
    (table,) = source.tables
    assert "its columns changed" in outcomes
    assert_rows_after_each(lake.rows(table.name, "shop_history"), table)


@pytest.mark.fault(
    "The process is killed while it refreshes the history of a table",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the history has its versions from before or those from after; the next refresh continues from there",
)
@pytest.mark.parametrize(
    "point",
    [
        "after-pipeline-files",
        "before-pipeline-commit",
        "before-commit",
        "after-pipeline-commit",
        "between-pipeline-renames",
    ],
)
def test_killed_refresh_of_a_history_is_repeated_exactly_once(lake: LakeHarness, point: str) -> None:
    source = Source(5, alters=0, gtids=True)
    source.start(["bigint"], 10)
    config = with_histories(lake, source, history="scd2")
    pipelines, round_ = PipelineLake(lake, config), Round(lake, source)
    (table,) = source.tables

    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    for _ in ("when it is built", "when it is changed"):
        round_.write(transactions=15)
        if point == "between-pipeline-renames":
            # The other kind has other columns, so another table takes its place.
            pipelines.settings = with_histories(lake, source, history="soft_delete")
            pipelines.refreshed()
            pipelines.settings = config
        with pytest.raises(PowerCut), failpoints.on_reach(reach):
            pipelines.refresh()
        pipelines.refreshed()
        assert_versions(lake.rows(table.name, "shop_history"), table)


def test_histories_beside_pipelines(lake: LakeHarness) -> None:
    source = Source(11, alters=0, gtids=True)
    source.start(["bigint", "keyless", "composite"], 12)
    tables = [
        {"name": "shop.t0_bigint", "history": "scd2", "history_columns": ["number"]},
        {"name": "shop.t1_keyless", "history": "scd2"},
        {"name": "shop.t2_composite", "history": "soft_delete"},
    ]
    config = lake.config(table=tables)
    pipelines, round_ = PipelineLake(lake, config), Round(lake, source)
    pipelines.define(
        "versions", "-- refresh: auto\nSELECT count(*) AS n FROM shop_history.t0_bigint WHERE NOT is_current"
    )
    assert {s.name: s.state for s in list_pipelines(config)}["shop_history.t0_bigint"] == "new"
    for _ in range(2):
        round_.write(transactions=25)
        found = {r.pipeline: r for r in pipelines.refresh()}
        refused = found.pop("shop_history.t1_keyless")
        assert isinstance(refused, NotRefreshed)
        assert "has no key" in refused.reason
        assert "key = [...]" in str(refused.hint)
        assert all(isinstance(r, Refreshed) for r in found.values())
    first, _, composite = source.tables
    rows = lake.rows(first.name, "shop_history")
    assert_versions(rows, first, ["number"])
    assert pipelines.rows("versions") == Counter({(sum(not row["is_current"] for row in rows),): 1})
    states = {s.name: s for s in list_pipelines(config)}
    assert states["shop_history.t1_keyless"].problem == refused.reason
    assert (states["shop_history.t0_bigint"].state, states["shop_history.t0_bigint"].rows) == (
        "current",
        len(rows),
    )
    assert ("shop_history", first.name) in result_tables(config)
    assert results_over(config)(first.name) == ("shop_history.t0_bigint", "shop_pipelines.versions")
    assert check_history(pipelines.pipelines(), histories_of(config)[0]).is_equal
    # Made again, it is the same, to the last digit.
    built = pipelines.refresh(None, "shop_history.t0_bigint", rebuild=["shop_history.t0_bigint"])
    assert [(r.pipeline, getattr(r, "outcome", None)) for r in built] == [
        ("shop_history.t0_bigint", Outcome.BUILT)
    ]
    again = lake.rows(first.name, "shop_history")
    assert Counter(map(str, again)) == Counter(map(str, rows))
    pipelines.pipelines().drop(histories_of(config)[2])
    with pytest.raises(NoSuchTableError):
        lake.rows(composite.name, "shop_history")


def snapshot_again(source: Source) -> None:
    """Let the log begin again at its first offset, with the rows of all tables as a connector's snapshot reads them."""
    source.records.clear()
    place = replace(source._place(), server_id=0, gtid=None)
    for table in source.tables:
        source._define(table, "CREATE", place)
        for row in table.rows.values():
            source._log(table, "r", place, after=row)


def test_history_outlives_its_changelog_and_is_not_made_of_a_shorter_one(lake: LakeHarness) -> None:
    source = Source(23, alters=0, gtids=True)
    source.start(["bigint"], 12)
    config = with_histories(lake, source, history="scd2")
    pipelines = PipelineLake(lake, config)
    Round(lake, source).write(transactions=25)
    pipelines.refreshed()
    (table,) = source.tables
    with lake.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            catalog.drop_table((namespace, table.name))
    shutil.rmtree(lake.folder / "archive")
    snapshot_again(source)
    round_ = Round(lake, source)
    round_.write(transactions=0)
    assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"same"}
    round_.write(transactions=20)
    assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"changed"}
    rows = lake.rows(table.name, "shop_history")
    assert_versions(rows, table)
    (refused,) = pipelines.refresh(rebuild=[f"shop_history.{table.name}"])
    assert isinstance(refused, NotRefreshed)
    assert "from before its changelog" in refused.reason
    assert_versions(lake.rows(table.name, "shop_history"), table)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6])
def test_law_of_histories(lake: LakeHarness, seed: int) -> None:
    """At each position, whatever came twice and whenever the process was killed, versions are the source's rows."""
    chance = random.Random(seed)
    partitions = chance.choice((1, 3))
    source = Source(seed, alters=chance.choice((0, 8)), gtids=chance.random() < 0.7, partitions=partitions)
    source.start([chance.choice(("bigint", "composite", "varchar"))], 8)
    (table,) = source.tables
    first = len(source.records)
    pipelines = PipelineLake(lake, with_histories(lake, source, history="scd2"))
    written = 0
    for _ in range(3):
        record_rows(source, chance.randint(3, 12))
        again = source.records[max(first, len(source.records) - chance.randint(0, 15)) :]
        lake.write([*source.records[written:], *again], partitions={table.topic: partitions})
        written = len(source.records)
        lake.catch_up()
        with contextlib.suppress(PowerCut), power_cut(chance.randint(1, 7)):
            pipelines.refreshed()
        pipelines.refreshed()
    rows = lake.rows(table.name, "shop_history")
    assert_rows_after_each(rows, table)
    assert_times(rows, table)
