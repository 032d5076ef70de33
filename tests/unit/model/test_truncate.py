"""The changes that a TRUNCATE undoes, if a topic has several partitions and any batches."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.lake.ledger import next_marker
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot import RESET_MS, Truncate, newest

TOPIC = "shop.shop.orders"
PARTITIONS = 3
DAY_MS = 24 * 3_600_000


@dataclass(frozen=True)
class LogEvent:
    """A change of `key`, in the partition `key % PARTITIONS`, or a TRUNCATE in any partition."""

    op: str
    key: int
    partition: int
    offset: int
    pos: int

    @property
    def position(self) -> SourcePosition:
        return SourcePosition("b.000001", 0 if self.op == "r" else self.pos, 0, 0 if self.op == "r" else 1)

    @property
    def kind(self) -> int:
        return 0 if self.op in "dt" else 1

    @property
    def truncate(self) -> Truncate:
        return Truncate(self.partition, self.offset, self.position, self.pos)

    def survives(self, truncates: Sequence[Truncate]) -> bool:
        return all(
            self.offset > t.offset
            if self.partition == t.partition
            else not t.undoes(self.position, self.kind, self.pos)
            for t in truncates
        )


@dataclass
class Mirror:
    """A mirror in plain Python that applies the rules; `rows` is key → position of the last change."""

    rows: dict[int, int] = field(default_factory=dict)
    changelog: list[LogEvent] = field(default_factory=list)
    marker: CommitMarker | None = None

    def apply(self, events: list[LogEvent], ends: dict[int, int]) -> None:
        truncates = [e.truncate for e in events if e.op == "t"]
        base = self.marker
        earlier = None if base is None else base.unfinished_truncate(TOPIC, list(ends))
        undoing = truncates if earlier is None else [earlier, *truncates]
        if truncates:
            self.rows = self._survivors(truncates)
        for e in events:
            if e.op == "t" or not e.survives(undoing):
                continue
            if e.op == "d":
                self.rows.pop(e.key, None)
            else:
                self.rows[e.key] = e.pos
        self.changelog += events
        self.marker = next_marker("m", 1, TOPIC, None, base, batch_stats(events, ends, base, truncates))

    def _survivors(self, truncates: list[Truncate]) -> dict[int, int]:
        if self.marker is None or not any(self.marker.may_reach_beyond(TOPIC, t) for t in truncates):
            return {}
        keys = {e.key for e in self.changelog if e.op != "t" and e.survives(truncates)}
        return {k: v for k, v in self.rows.items() if k in keys}


def batch_stats(
    events: list[LogEvent], ends: dict[int, int], base: CommitMarker | None, truncates: list[Truncate]
) -> BatchStats:
    progress = {}
    for partition, end in ends.items():
        known = None if base is None else base.progress.get(TOPIC, {}).get(partition)
        high = None if known is None else known.high_water
        for e in events:
            if e.partition == partition and e.op != "r":
                high = HighWater(e.position, e.kind, e.pos)
        progress[partition] = PartitionProgress(end, high)
    latest = max((e.pos for e in events), default=None)
    return BatchStats({"c": 1}, (), 0, 0, tuple(truncates), progress, None, latest)


def history(chance: random.Random) -> list[LogEvent]:
    events: list[LogEvent] = []
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    snapshot = chance.randint(0, 6)
    for i in range(snapshot + chance.randint(1, 25)):
        op = "r" if i < snapshot else chance.choice("ccuudt")
        key = chance.randint(0, 8)
        partition = chance.randrange(PARTITIONS) if op == "t" else key % PARTITIONS
        events.append(LogEvent(op, key, partition, offsets[partition], i + 1))
        offsets[partition] += 1
    return events


def source(events: list[LogEvent]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for e in events:
        if e.op == "t":
            rows.clear()
        elif e.op == "d":
            rows.pop(e.key, None)
        else:
            rows[e.key] = e.pos
    return rows


@settings(max_examples=500)
@given(seed=st.integers(0, 2**32))
def test_truncate_rules_keep_a_model_mirror_equal_to_the_source_for_any_batches(seed: int) -> None:
    chance = random.Random(seed)
    events = history(chance)
    mirror, done = Mirror(), dict.fromkeys(range(PARTITIONS), 0)
    logs = {p: [e for e in events if e.partition == p] for p in range(PARTITIONS)}
    while any(done[p] < len(logs[p]) for p in logs):
        goal = {p: chance.randint(done[p], len(logs[p])) for p in logs}
        ends = {p: end for p, end in goal.items() if end > done[p]}
        batch = [e for p, end in ends.items() for e in logs[p][done[p] : end]]
        if batch:
            mirror.apply(batch, ends)
        done |= ends
    assert mirror.rows == source(events)


AT = Truncate(0, 5, SourcePosition("b.000009", 500, 0, 7), DAY_MS)


def test_truncate_is_ordered_by_time_only_when_positions_are_not_comparable() -> None:
    earlier, later = (SourcePosition("b.000009", pos, 3, 7) for pos in (499, 501))
    assert AT.undoes(earlier, 1, DAY_MS + 5000)
    assert not AT.undoes(later, 0, DAY_MS - 5000)
    # Rows of a snapshot have no server id.
    assert AT.undoes(SourcePosition("b.000002", 4), 1, DAY_MS)
    # The numbers of the binlog files begin at one again.
    assert not AT.undoes(SourcePosition("b.000001", 4, 0, 7), 1, DAY_MS + RESET_MS + 1)
    # Another server.
    assert AT.undoes(SourcePosition("b.000020", 4, 0, 8), 1, DAY_MS)
    assert not AT.undoes(SourcePosition("b.000001", 4, 0, 8), 1, DAY_MS + 1)


def test_transactions_of_one_origin_are_ordered_by_their_numbers_after_a_fail_over() -> None:
    def at(file: int, gtid: str) -> SourcePosition:
        return SourcePosition(f"b.{file:06d}", 4, 0, 7, gtid)

    truncate = Truncate(0, 5, at(9, "a:20"), DAY_MS)
    assert truncate.undoes(at(20, "a:19"), 1, DAY_MS)
    assert not truncate.undoes(at(3, "a:21"), 1, DAY_MS)
    # Other origins, another tag, and another block of a replication group.
    for gtid in ("b:19", "a:t:19", "a:1000019"):
        assert not truncate.undoes(at(20, gtid), 1, DAY_MS)
        assert truncate.undoes(at(3, gtid), 1, DAY_MS)
    # The server has begun to count again.
    assert not truncate.undoes(at(1, "a:1"), 1, DAY_MS + RESET_MS + 1)


def test_newest_returns_the_truncate_that_undoes_the_others() -> None:
    older = Truncate(2, 90, SourcePosition("b.000009", 400, 0, 7), DAY_MS - 10)
    assert newest([]) is None
    assert newest([older, AT]) == newest([AT, older]) == AT


def marker(truncate: Truncate | None, **progress: PartitionProgress) -> CommitMarker:
    by_partition = {int(name[1:]): p for name, p in progress.items()}
    return CommitMarker("m", 1, 1, {TOPIC: by_partition}, watermark_ms=DAY_MS, truncate=truncate)


def test_truncate_is_finished_when_every_partition_is_beyond_it() -> None:
    beyond = PartitionProgress(9, HighWater(SourcePosition("b.000009", 600, 0, 7), 1, DAY_MS))
    behind = PartitionProgress(9, HighWater(SourcePosition("b.000009", 400, 0, 7), 1, DAY_MS))
    assert marker(AT, p0=behind, p1=beyond).unfinished_truncate(TOPIC, [0, 1]) is None
    assert marker(AT, p0=behind, p1=behind).unfinished_truncate(TOPIC, [1]) == AT
    assert marker(AT, p0=behind, p1=behind).unfinished_truncate(TOPIC, [0]) is None
    assert marker(AT, p0=behind).unfinished_truncate(TOPIC, [0, 1]) == AT
    # Another topic, whose offsets cannot be compared.
    assert marker(AT, p0=behind).unfinished_truncate("other", [0, 1]) is None
    assert marker(AT, p0=behind, p1=beyond).may_reach_beyond(TOPIC, AT)
    assert not marker(AT, p0=beyond, p1=behind).may_reach_beyond(TOPIC, AT)


def test_commit_marker_has_no_truncate_when_an_older_version_wrote_it() -> None:
    document = json.loads(marker(AT).to_json())
    assert CommitMarker.from_json(json.dumps(document)).truncate == AT
    del document["truncate"]
    assert CommitMarker.from_json(json.dumps(document)).truncate is None


def test_snapshot_undoes_no_later_changes_of_another_server() -> None:
    """It has no server id, so positions are compared; times tell that the change is later."""
    at = Truncate(0, 5, SourcePosition("b.000100", 4), DAY_MS)
    lower = SourcePosition("b.000007", 4, server_id=2)
    assert at.undoes(lower, 1, DAY_MS + 5000)
    assert not at.undoes(lower, 1, DAY_MS + 600_000)
