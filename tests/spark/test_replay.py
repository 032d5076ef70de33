"""Replays of archives and of parts of them: nothing is duplicated, nothing is left out, and gaps are refused."""

import copy
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config import Config
from replicator.errors import ArchiveError, CheckFailed, UsageError
from replicator.model.moments import ReplayRange, parse_as_of
from replicator.runner.archive_run import apply_archive, check_range, limit_archive, open_archive
from replicator.runner.build import open_context, open_scheduler
from replicator.runner.summary import RunSummary
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.archive.writer import ArchiveWriter
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Source, SourceTable
from tests.support.archived_events import append_event
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.law import law
from tests.support.logs import captured_logs
from tests.support.old_archive import as_version_3
from tests.support.orders_table import DEFINITION, ORDERS, created
from tests.support.s3 import s3_bucket
from tests.support.scenario import ID, other_table, row_of, rows


def replay(
    lake: LakeHarness,
    *tables: str,
    after: str | None = None,
    until: str | None = None,
    allow_gap: bool = False,
    config: Config | None = None,
) -> RunSummary:
    """Replay as the command does, on the JVM of all tests."""
    config = config or lake.config()
    begin, end = (None if text is None else parse_as_of(text) for text in (after, until))
    wanted = ReplayRange(tables, begin, end, allow_gap)
    log = open_archive(config)
    starts = limit_archive(log, wanted)
    scheduler = open_scheduler(open_context(config, log, lake.session(config)), only=tables)
    check_range(scheduler, log, wanted, starts)
    apply_archive(scheduler)
    return scheduler.summary()


def lake_tables(lake: LakeHarness) -> set[str]:
    with lake.catalog() as catalog:
        return {name[-1] for name in catalog.list_tables("shop")}


def assert_equal(lake: LakeHarness, tables: list[SourceTable]) -> None:
    with lake.catalog() as catalog:
        for table in tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


def history(
    lake: LakeHarness, seed: int, *, transactions: int, restarts: int = 0, partitions: int = 1
) -> Source:
    source = Source(seed, partitions=partitions)
    source.start(("bigint", "composite"), rows=8)
    source.run(transactions)
    lake.write(source.delivered(restarts), gaps=seed)
    return source


@law(2)
@given(
    seed=st.integers(0, 2**32),
    restarts=st.integers(0, 2),
    partitions=st.sampled_from([1, 2]),
    crashes=st.lists(st.integers(1, 12), max_size=2),
    driver_max_events=st.sampled_from([0, 10_000]),
)
def test_replays_of_any_ranges_apply_each_event_once(
    lake: LakeHarness,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    restarts: int,
    partitions: int,
    crashes: list[int],
    driver_max_events: int,
) -> None:
    """A part came from the log itself; then any ranges are replayed, some of them killed, and at last everything."""
    lake = LakeHarness(
        lake.base, Path(tmp_path_factory.mktemp("replay")), driver_max_events=driver_max_events
    )
    source = history(lake, seed, transactions=30, restarts=restarts, partitions=partitions)
    chance = random.Random(seed)
    file, pos = source.position
    cuts = sorted(chance.randint(4, pos) for _ in range(3)) if file == 999_998 else [4, 4, pos]
    mirror = lake.mirror()
    _, ends = mirror.context.log.offsets()
    some = {t: {p: chance.randint(0, end) for p, end in ps.items()} for t, ps in ends.items()}
    mirror.advance(some)
    for cut in cuts:
        for crash in crashes[:1]:
            try:
                with power_cut(crash):
                    replay(lake, until=f"bin.{file}:{cut}")
            except PowerCut:
                pass
        assert replay(lake, until=f"bin.{file}:{cut}").paused == {}
    # The lake has everything up to the last cut.
    replay(lake, after=f"bin.{file}:{cuts[-1]}")
    assert replay(lake).events == 0
    assert_equal(lake, source.tables)


@pytest.mark.long
def test_replay_until_a_position_gives_the_tables_of_that_time(lake: LakeHarness) -> None:
    source = Source(7, alters=15)
    source.start(("bigint", "varchar"), rows=8)
    source.run(40)
    then, (file, pos) = copy.deepcopy(source.tables), source.position
    source.run(40)
    lake.write(source.records)
    replay(lake, until=f"bin.{file}:{pos}")
    assert_equal(lake, then)
    replay(lake, after=f"bin.{file}:{pos}")
    assert_equal(lake, source.tables)


def test_replay_is_refused_when_the_lake_lacks_earlier_events(lake: LakeHarness) -> None:
    source = Source(3)
    source.start(("bigint", "composite"), rows=4)
    source.run(20)
    file, pos = source.position
    first = len(source.records)
    source.run(20)
    lake.write(source.records)
    name = source.tables[0].name
    with pytest.raises(CheckFailed, match="the lake lacks events from before the range") as refused:
        replay(lake, after=f"bin.{file}:{pos}")
    assert "--allow-gap" in (refused.value.hint or "")
    assert lake_tables(lake) == set()
    replay(lake, f"shop.{name}", until=f"bin.{file}:{pos}")
    # One of the tables is complete up to the position, and the other is not in the lake.
    with pytest.raises(CheckFailed, match=f"of shop.{source.tables[1].name}; nothing"):
        replay(lake, after=f"bin.{file}:{pos}")
    replay(lake, f"shop.{name}", after=f"bin.{file}:{pos}")
    replay(lake)
    assert_equal(lake, source.tables)
    assert first < len(source.records)


def test_replay_with_a_gap_begins_only_tables_that_are_new(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *(created(n) for n in range(6))])
    replay(lake, "shop.orders", until="bin.000001:101")
    assert sorted(r["id"] for r in lake.rows("orders")) == [0, 1]
    with pytest.raises(CheckFailed) as refused:
        replay(lake, "shop.orders", after="bin.000001:103", allow_gap=True)
    assert "--allow-gap" not in (refused.value.hint or "")
    shutil.rmtree(lake.folder / "lake")
    replay(lake, "shop.orders", after="bin.000001:103", allow_gap=True)
    assert sorted(r["id"] for r in lake.rows("orders")) == [4, 5]
    assert [r["id"] for r in lake.rows("orders", "shop_changes")] == [4, 5]


def test_replay_pauses_the_new_table_whose_beginning_the_archive_lacks(lake: LakeHarness) -> None:
    lake.write([DEFINITION])
    with ArchiveWriter(lake.folder / "archive", topic_prefix="shop", encoding="json") as writer:
        append_event(writer, _event(7, created(1).value))
    paused = replay(lake).paused
    assert list(paused) == ["shop.orders"]
    assert paused["shop.orders"].startswith("the archive does not have shop.orders from its beginning")
    assert replay(lake, allow_gap=True).paused == {}
    assert lake_tables(lake) == {"orders"}
    assert replay(lake).paused == {}, "the lake has it up to the archive's beginning"


def test_replay_says_that_it_does_not_know_whether_rows_are_missing(lake: LakeHarness) -> None:
    lake.write([created(1)])
    with captured_logs() as logged:
        replay(lake)
    assert [line["tables"] for line in logged if "does not tell" in line["event"]] == ["shop.orders"]


def _event(offset: int, value: bytes | None) -> Event:
    return Event(ORDERS, 0, offset, 1, None, value)


def test_replay_of_chosen_tables_leaves_the_others_alone(lake: LakeHarness) -> None:
    source = history(lake, 5, transactions=20)
    first, second = source.tables
    replay(lake, f"shop.{first.name}")
    assert lake_tables(lake) == {first.name}
    assert_equal(lake, [first])
    with pytest.raises(UsageError, match=r"--table shop\.nothing"):
        replay(lake, "shop.nothing")
    replay(lake)
    assert_equal(lake, [first, second])


@pytest.mark.parametrize("name", ["orders", "bills"])
def test_replay_chooses_a_renamed_table_by_any_of_its_names(lake: LakeHarness, name: str) -> None:
    columns = [ID, ColumnSpec("a", "int")]
    other = [other_table("other", "CREATE", 50, columns=columns), row_of("other", 60, id=9, a=9)]
    first = [other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=1, a=1)]
    renamed = [
        other_table("bills", "ALTER", 300, old="orders", columns=columns),
        row_of("bills", 400, id=2, a=2),
    ]
    lake.write(other + first + renamed)
    if name == "orders":
        assert replay(lake, f"shop.{name}", until="bin.1:200").paused == {}
        assert rows(lake) == [{"id": 1, "a": 1}]
    else:
        # The table does not have this name yet.
        with pytest.raises(UsageError, match="no event of a mirrored table"):
            replay(lake, f"shop.{name}", until="bin.1:200")
    assert replay(lake, f"shop.{name}").paused == {}
    assert rows(lake, "bills") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert lake_tables(lake) == {"bills"}


def test_replay_refuses_a_range_that_ends_before_it_begins(lake: LakeHarness) -> None:
    history(lake, 5, transactions=20)
    with pytest.raises(UsageError, match="ends before it begins"):
        replay(lake, after="bin.999999:4", until="bin.999997:4")


@pytest.mark.fault(
    "A file of the archive is damaged",
    area="Archive",
    on="Iceberg; events by hand",
    outcome="the replay ends with an error; it continues with the whole file",
)
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_replay_stops_at_a_damaged_file(lake: LakeHarness, driver_max_events: int) -> None:
    lake.driver_max_events = driver_max_events
    lake.write([DEFINITION, *(created(n) for n in range(6))])
    lake.write([created(n) for n in range(6, 9)])
    file = lake.folder / "archive" / "events" / "000002.parquet"
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    whole, damaged = file.read_bytes(), bytes(content)
    file.write_bytes(damaged)
    with pytest.raises(ArchiveError, match=r"events/000002\.parquet is damaged"):
        replay(lake)
    file.write_bytes(whole)
    replay(lake)
    assert [r["id"] for r in lake.rows("orders", "shop_changes")] == list(range(9))


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_archive_with_files_of_an_earlier_release_is_replayed(
    lake: LakeHarness, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    lake.write([DEFINITION, *(created(n) for n in range(6))])
    as_version_3(lake.folder / "archive")
    lake.write([created(n) for n in range(6, 9)])
    assert [path[-8:] for path in ArchiveReader(lake.folder / "archive").entries] == ["001.avro", ".parquet"]
    replay(lake)
    assert [r["id"] for r in lake.rows("orders", "shop_changes")] == list(range(9))


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_archive_in_an_object_store_is_replayed(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    source = history(lake, 9, transactions=30)
    with s3_bucket() as bucket:
        storage = open_storage(f"{bucket.url}/archive", lambda: bucket.options)
        with ArchiveWriter(storage, topic_prefix="shop", encoding="json", max_events=50) as writer:
            reader = ArchiveReader(lake.folder / "archive")
            for topic, partition in reader.manifest.partitions:
                for event in reader.events(topic, partition):
                    append_event(writer, event)
        lake_section = {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:lake/catalog.db",
            "warehouse": "lake",
            "namespace": "shop",
            "options": bucket.configured(monkeypatch),
        }
        log = {"kind": "archive", "path": f"{bucket.url}/archive"}
        config = lake.config(lake=lake_section, log=log)
        file, pos = source.position
        replay(lake, until=f"bin.{file}:{pos // 2}", config=config)
        replay(lake, config=config)
    assert_equal(lake, source.tables)
    # Copies for Spark are deleted.
    assert not (config.mirror.state_dir / "archive").exists()
