"""A mirror that was stopped for longer than its log keeps events continues from the log's archive."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.change_log import ChangeLog
from replicator.sources.joined_log import RecordedPast
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.model import Source
from tests.support.failpoints import PowerCut, power_cut
from tests.support.kept_log import Kept, KeptLog, joined, record_log
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created, half


def joined_to(kept: Kept) -> Callable[[Path], ChangeLog]:
    """Return a function that opens the log in a folder, joined to the archive beside it."""

    def opened(path: Path) -> ChangeLog:
        past = RecordedPast(open_storage(path.with_name("past")), "shop")
        return joined(KeptLog(path, kept), past)

    return opened


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_mirror_continues_from_the_archive_and_is_killed_meanwhile(
    lake: LakeHarness, driver_max_events: int
) -> None:
    source = Source(11, partitions=2, with_schemas=False, alters=12)
    source.start(("bigint", "composite"), rows=8)
    source.run(25)
    kept: Kept = {}
    lake.open_log, lake.driver_max_events = joined_to(kept), driver_max_events
    records = source.delivered(1)
    # Without a gap before the first records: their topics would look as if they had lost rows of the snapshot.
    lake.write(records[:40])
    lake.write(records[40:], gaps=3)
    mirror = lake.mirror()
    mirror.advance(half(mirror.context.log.offsets()[1]))
    record_log(lake.folder / "archive", lake.folder / "past")
    # The newest events are only in the log; of the others, and of all definitions, it has none any more.
    kept |= {
        key: max(0, end - 3) for key, end in ArchiveReader(lake.folder / "archive").end_offsets().items()
    }
    kept["shop", 0] += 3
    for crash in (2, 7):
        with suppress(PowerCut), power_cut(crash):
            lake.catch_up()
    assert lake.catch_up().summary().paused == {}
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


@pytest.mark.fault(
    "Neither Kafka nor the archive has some events",
    area="Archive",
    on="Iceberg; events by hand",
    outcome="the table pauses",
    lost="the lost events, until the table is read again",
)
@pytest.mark.parametrize("new", [False, True])
def test_table_pauses_when_the_archive_has_a_gap(lake: LakeHarness, new: bool) -> None:
    kept: Kept = {}
    lake.open_log = joined_to(kept)
    lake.write([DEFINITION, created(1), created(2)])
    if not new:
        lake.catch_up()
    record_log(lake.folder / "archive", lake.folder / "past")
    lake.write([created(n) for n in range(3, 7)])
    kept[ORDERS, 0] = 4
    mirror = lake.catch_up()
    (reason,) = mirror.summary().paused.values()
    if new:
        assert f"{ORDERS} begins at offset 4 without a snapshot" in reason
    else:
        assert "the lake needs offset 2 next, the log begins at 4" in reason
