"""Random stories of a mirror: what happens to its source, its log, its process and its lake, step by step."""

import random
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from replicator.lake.reading.table_metadata import newest_marker
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from tests.oracle.compare import (
    assert_changes_equal,
    assert_changes_once,
    assert_mirror_equals,
    assert_rows_equal,
    lake_rows,
)
from tests.oracle.history import RecordedTables, Version
from tests.oracle.model import DATABASE, Record, SourceTable
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.replicated_log import binlog_place, replicate
from tests.support.story_fates import (
    ADDED_PARTITION,
    INTERRUPTED,
    NO_SNAPSHOT,
    ROLLED_BACK,
    Fate,
)
from tests.support.story_lake import CHANGELOG, MIRROR, OtherWriters
from tests.support.story_log import StoryLog
from tests.support.story_steps import (
    AddPartition,
    Change,
    Commit,
    Compact,
    FailOver,
    RecreateTopic,
    Redeliver,
    Restart,
    RollBack,
    SnapshotAgain,
    Step,
    Story,
    UserDdl,
)

NEVER: Final = 10**9


class StoryPlayer:
    """Plays a story with a lake, and compares it with the oracle after each commit and at the end."""

    def __init__(self, lake: LakeHarness, story: Story) -> None:
        self.lake = lake
        self.story = story
        self.source = RecordedTables(
            story.seed,
            partitions=story.partitions,
            with_schemas=story.with_schemas,
            alters=6,
            gtids=story.gtids,
        )
        self.source.start(story.shapes, rows=6)
        self.fates = {table.name: Fate() for table in self.source.tables}
        self.checked = 0
        """How many times a mirror was compared at its marker."""
        self._chance = random.Random(story.seed)
        self._ids: dict[str, str] = {}
        self._log: list[tuple[int, Record]] = []
        """The records of the log, of topics that were not deleted, and the number of each in the source."""
        self._first_counts: dict[str, int] = {}
        """The number of partitions that each topic had at its first record."""
        self._replicated: dict[int, Record] = {}
        """The records that have another position in the binlog of the present server."""
        self._servers: list[dict[int, Record]] = []
        """The same of each server since the last repeated snapshot."""
        self._has_other_server = False
        """Whether the source is another server than at first."""
        self._has_repeated_snapshot = False
        """Whether the connector has taken its snapshot again."""
        self._delivered = 0
        self._floor = len(self.source.records)
        """A connector writes no earlier record again."""
        lake.open_log = lambda path: StoryLog(
            path, self._ids, self.source.partitions if story.lists_partitions else None
        )
        lake.driver_max_events = story.driver_max_events
        lake.format_version = story.format_version
        self.config = lake.config(
            apply={"strategy": story.strategy},
            maintenance={"merge_files": 5, "max_lag": "100000 days"},
        )
        self._deliver()
        self._start()

    def play(self) -> None:
        """Play all steps, restart, and compare every table with the source."""
        for number, step in enumerate(self.story.steps, start=1):
            try:
                self._step(step)
            except Exception as error:
                error.add_note(f"in step {number} of this {self.story.text()}")
                raise
        try:
            self._finish()
        except Exception as error:
            error.add_note(f"at the end of this {self.story.text()}")
            raise

    def _step(self, step: Step) -> None:
        match step:
            case Change():
                self.source.run(step.transactions)
                self._deliver()
            case Commit():
                self._commit(step)
            case Restart():
                self._start()
            case Redeliver() | FailOver() | SnapshotAgain() | RecreateTopic() | AddPartition():
                self._change_log(step)
            case RollBack() | Compact() | UserDdl():
                self._change_lake(step)

    def _change_log(self, step: Redeliver | FailOver | SnapshotAgain | RecreateTopic | AddPartition) -> None:
        match step:
            case Redeliver():
                start = max(self._floor, self._delivered - step.records)
                if self._replicated:
                    self._note_again(range(start, self._delivered))
                self._delivered = start
                self._deliver()
            case FailOver():
                self._fail_over(step)
            case SnapshotAgain():
                self._snapshot_again(step)
            case RecreateTopic():
                self._recreate(self._table(step.table), with_snapshot=step.snapshot)
            case AddPartition():
                self._add_partition()

    def _table(self, number: int) -> SourceTable:
        return self.source.tables[number % len(self.source.tables)]

    # The log

    def _deliver(self) -> None:
        """Write the records that the connector has not written since its last start."""
        self._deliver_up_to(len(self.source.records))

    def _deliver_up_to(self, end: int) -> None:
        new = [(i, self._replicated.get(i, self.source.records[i])) for i in range(self._delivered, end)]
        self._write(new)
        self._log += new
        self._delivered = end

    def _write(self, new: Sequence[tuple[int, Record]]) -> None:
        for _, record in new:
            self._first_counts.setdefault(record.topic, self.source.partitions)
        # Kafka does not tell these numbers.
        counts = None if self.story.lists_partitions else self._first_counts
        self.lake.write([record for _, record in new], partitions=counts)

    def _add_partition(self) -> None:
        self.source.partitions += 1
        self._floor = self._delivered
        for fate in self.fates.values():
            fate.pauses.add(ADDED_PARTITION)
        if self.story.lists_partitions:
            log: Any = self.mirror.context.log
            log.list_partitions(self.source.partitions)
            for fate in self.fates.values():
                fate.must_pause = ADDED_PARTITION

    def _has_added_partition(self, table: SourceTable) -> bool:
        """Whether a topic has a record in a partition that was added after its first record."""
        return any(
            r.topic == table.topic and r.partition >= self._first_counts[r.topic] for _, r in self._log
        )

    def _fail_over(self, step: FailOver) -> None:
        first = len(self.source.records)
        self.source.run(1)
        self._deliver_up_to(self._chance.randint(first, len(self.source.records)))
        present = [self._replicated.get(i, r) for i, r in enumerate(self.source.records)]
        moved = replicate(present[self._floor :], self.source.position, step.higher, self._chance)
        before, self._replicated = self._replicated, dict(enumerate(moved.records, start=self._floor))
        self._servers.append(self._replicated)
        self._note_moved(range(self._delivered, len(self.source.records)))
        start = max(self._floor, self._delivered - step.records)
        self._note_ended(before)
        self._note_again(range(start, len(self.source.records)))
        self.source.fail_over(*moved.end)
        self._has_other_server = True
        self._delivered = start
        self._deliver()

    def _snapshot_again(self, step: SnapshotAgain) -> None:
        since = self._end_of_replica(step.records)
        if since is None:
            return
        present = [self._replicated.get(i, r) for i, r in enumerate(self.source.records)][since:]
        moved = replicate(present, self.source.position, step.higher, self._chance)
        places = {}
        for i, now in enumerate(moved.records, start=since):
            # The log has a change at the position of any server.
            for was in (self.source.records[i], *(s[i] for s in self._servers if i in s)):
                if was.value is not None and now.value is not None:
                    before, after = binlog_place(was), binlog_place(now)
                    places[before.op, before.key] = (after.file, after.pos)
        file, end = moved.end
        begin = min((after[1] for after in places.values()), default=end + 1)
        self.source.snapshot_again(since, (file, begin - 1), moved.records, places)
        self.source.fail_over(*moved.end)
        # The connector has no earlier offset.
        self._floor = len(self.source.records) - len(moved.records)
        self._replicated, self._has_other_server = {}, True
        self._servers = []
        self._has_repeated_snapshot = True
        for fate in self.fates.values():
            fate.note_repeated_snapshot(is_divided=self.source.partitions > 1)
        self._deliver()

    def _end_of_replica(self, records: int) -> int | None:
        """Return how many records a replica has that lags by about this many; None if no replica can be so.

        The replica has all definitions, and rows of every table.
        """
        logged, gtids = self.source.records, list[str | None]([None])
        for record in self.source.records:
            gtids.append(binlog_place(record).gtid if record.value is not None else gtids[-1])
        last = max(i for i, r in enumerate(logged) if r.snapshot or r.topic == DATABASE)
        for since in range(max(self._floor, last + 1, len(logged) - records), len(logged) + 1):
            begins = since == len(logged) or (
                logged[since].value is not None and gtids[since] != gtids[since + 1]
            )
            if begins and all(self.source.rows_at(t.name, since) for t in self.source.tables):
                return since
        return None

    def _note_moved(self, records: range) -> None:
        """Note that the log has the changes of these records at the present server's positions only."""
        for table in self.source.tables:
            for i in records:
                record, new = self.source.records[i], self._replicated[i]
                if record.topic == table.topic and record.value is not None and new.value is not None:
                    place, after = binlog_place(record), binlog_place(new)
                    table.move_change(place.op, place.key, (after.file, after.pos))

    def _note_ended(self, before: Mapping[int, Record]) -> None:
        """Note which transactions the connector may have been interrupted within: the last of each file."""
        for table in self.source.tables:
            fate = self.fates[table.name]
            # After the snapshot of a replica that lags, the last transaction of an earlier file may come again.
            if self._has_repeated_snapshot:
                fate.pauses.add(INTERRUPTED)
            for partition in range(self.source.partitions):
                events = self._delivered_changes(table, partition)
                # The mirror may know a transaction from this server, or from the one on which it was committed.
                committed = [binlog_place(self.source.records[i]) for i in events]
                present = [binlog_place(before.get(i, self.source.records[i])) for i in events]
                for places in (committed, present):
                    fate.ended |= set({p.file: p.gtid for p in places}.values())

    def _delivered_changes(self, table: SourceTable, partition: int) -> list[int]:
        """Return the changes of a table in one partition that the connector may write again, and that it wrote."""
        return [
            i
            for i in range(self._floor, self._delivered)
            if (r := self.source.records[i]).topic == table.topic
            and r.partition == partition
            and r.value is not None
        ]

    def _note_again(self, again: range) -> None:
        """Note the tables that may pause because the present server sends a transaction that another one began."""
        for table in self.source.tables:
            fate = self.fates[table.name]
            sent = {
                binlog_place(r).gtid
                for i in again
                if (r := self.source.records[i]).topic == table.topic and r.value is not None
            }
            if sent & fate.ended:
                fate.pauses.add(INTERRUPTED)

    def _recreate(self, table: SourceTable, *, with_snapshot: bool) -> None:
        fate, first = self.fates[table.name], len(self.source.records)
        if with_snapshot and table.rows:
            fate.must_pause = None
            self.source.snapshot(table)
        else:
            fate.must_pause = NO_SNAPSHOT
            fate.pauses.add(NO_SNAPSHOT)
            self.source.insert_into(table)
        fate.note_recreated_topic(first, is_divided=self.source.partitions > 1)
        self._ids[table.topic] = f"since record {first}"
        # The other topics keep their records and offsets.
        self._log = [(i, record) for i, record in self._log if record.topic != table.topic]
        shutil.rmtree(self.lake.folder / "archive")
        self._first_counts.pop(table.topic, None)
        self._write(self._log)
        self._deliver()
        self._floor = self._delivered
        self._start()

    # The mirror

    def _start(self) -> None:
        self.mirror: Scheduler = self.lake.mirror(self.config)
        self.rounds = Rounds(self.mirror, follows=False)
        for fate in self.fates.values():
            fate.unsettled = False

    def _commit(self, step: Commit) -> None:
        log: Any = self.mirror.context.log
        log.refresh()
        first, ends = self.mirror.check_log()
        goal = {
            topic: {
                p: end if step.end else self._chance.randint(first[topic][p], end) for p, end in ps.items()
            }
            for topic, ps in ends.items()
        }
        try:
            with power_cut(step.kill_at or NEVER):
                self.rounds.advance(goal)
        except PowerCut:
            self._start()
            self.rounds.advance(goal)
        self._check()

    # The lake

    def _change_lake(self, step: RollBack | Compact | UserDdl) -> None:
        table, others = self._table(step.table), OtherWriters(self.lake, self.config)
        match step:
            case RollBack():
                if others.roll_back(table, step):
                    fate = self.fates[table.name]
                    fate.unsettled = True
                    fate.pauses.add(ROLLED_BACK)
            case Compact():
                others.compact(table, step)
            case UserDdl():
                others.change_layout(table, step)

    # The law

    def _paused(self) -> Mapping[str, str]:
        """Return the paused tables with their reasons, each of which the story must explain."""
        found = {
            name.removeprefix(f"{DATABASE}."): reason for name, reason in self.mirror.summary().paused.items()
        }
        for name, reason in found.items():
            assert any(part in reason for part in self.fates[name].pauses), f"{name} paused: {reason}"
        return found

    def _check(self) -> None:
        """Assert that each table that is read equals the oracle's at the position of its marker."""
        paused = self._paused()
        with self.lake.catalog() as catalog:
            for table in self.source.tables:
                if table.name not in paused and not self.fates[table.name].unsettled:
                    self._check_mirror(catalog, table)
                    self._check_changelog(catalog, table)

    def _check_mirror(self, catalog: Catalog, table: SourceTable) -> None:
        versions = self._versions(catalog, MIRROR, table)
        rows = lake_rows(catalog, MIRROR, table.name)
        if rows:
            versions = [v for v in versions if {c.name for c in v.columns} == rows[0].keys()]
        if not versions:
            return
        self.checked += 1
        errors = []
        for version in versions:
            try:
                assert_rows_equal(rows, version.table(table.name, table.key))
            except AssertionError as error:
                errors.append(error)
        if len(errors) == len(versions):
            raise errors[0]

    def _check_changelog(self, catalog: Catalog, table: SourceTable) -> None:
        versions = self._versions(catalog, CHANGELOG, table)
        rows = lake_rows(catalog, CHANGELOG, table.name)
        if versions and not self.fates[table.name].lost:
            assert_changes_once(rows, table.name, table.changes[: versions[0].changes])

    def _versions(self, catalog: Catalog, namespace: str, table: SourceTable) -> list[Version]:
        """Return the oracle's versions at a lake table's marker; empty if the marker is between two of them.

        That is so if the partitions of the topic were read up to different positions, or within a snapshot.
        """
        try:
            marker = newest_marker(catalog.load_table((namespace, table.name)))
        except NoSuchTableError:
            return []
        assert marker is not None
        read = self._records_before(
            table.topic,
            {p: reached.next_offset for p, reached in marker.progress.get(table.topic, {}).items()},
        )
        since = self.fates[table.name].since
        if not read or max(read) < since:
            return []
        records = self.source.records[since : max(read) + 1]
        if any(r.topic == table.topic and i not in read for i, r in enumerate(records, start=since)):
            return []
        versions = self.source.candidates(table.name, max(read) + 1)
        return [] if not versions or versions[0].is_part else versions

    def _records_before(self, topic: str, ends: Mapping[int, int]) -> set[int]:
        """Return the records of the source that a topic has before offsets; redelivery repeats some of them."""
        offsets: dict[int, int] = {}
        found = set[int]()
        for i, record in self._log:
            if record.topic == topic:
                offset = offsets.get(record.partition, 0)
                offsets[record.partition] = offset + 1
                if offset < ends.get(record.partition, 0):
                    found.add(i)
        return found

    def _finish(self) -> None:
        self._start()
        for _ in range(2):
            self._commit(Commit(end=True))
        paused = self._paused()
        with self.lake.catalog() as catalog:
            for table in self.source.tables:
                fate = self.fates[table.name]
                if table.name in paused:
                    continue
                reason = fate.must_pause or (ADDED_PARTITION if self._has_added_partition(table) else None)
                assert reason is None, f"{table.name} did not pause: {reason}"
                assert_mirror_equals(catalog, MIRROR, table)
                rows = lake_rows(catalog, CHANGELOG, table.name)
                if fate.lost:
                    assert_changes_once(rows, table.name, table.changes, lost=True)
                else:
                    # Positions of several servers have no order.
                    ordered = self.source.partitions == self.story.partitions and not self._has_other_server
                    assert_changes_equal(rows, table, ordered=ordered)
