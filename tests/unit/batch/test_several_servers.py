"""Redelivered transactions of several servers, whose binlogs have them at other positions and in another order."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from replicator.batch.redelivery import Binlog
from replicator.errors import SourceUnavailable, TransactionInterrupted
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import PartitionProgress
from replicator.model.position import SourcePosition, binlog_number
from tests.support.decoded_events import DecodedEvent, again, run

Gtid = tuple[str, int]


def event(gtid: str, file: int, pos: int, *, server_id: int = 1, ts_ms: int = 1000) -> DecodedEvent:
    return DecodedEvent("u", file, pos, gtid=gtid, server_id=server_id, ts_ms=ts_ms)


def kept(batches: list[list[DecodedEvent]]) -> list[int]:
    """Return the number of events of each batch that were not delivered before."""
    progress: dict[int, PartitionProgress] = {}
    found = []
    for batch in batches:
        stats = run(batch, progress)
        progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in stats.progress.items()}
        found.append(sum(stats.events.values()))
    return found


SENT = [event("a:1", 9, 100), event("a:2", 9, 200), event("a:4", 9, 300)]


@pytest.mark.parametrize("file", [3, 9, 12])
def test_transactions_are_redelivered_by_another_server(file: int) -> None:
    """The last transaction comes again too; it is recorded twice if its file differs, because it may be a rest."""
    later = [event("a:2", file, 1200), event("a:5", file, 1400)]
    assert kept([SENT, later]) == [3, 1]
    assert kept([SENT + later]) == [4]


def test_transactions_are_redelivered_in_a_log_of_two_origins() -> None:
    sent = [event(f"{'ab'[n % 2]}:{n}", 9, 100 * n, server_id=1 + n % 2) for n in range(1, 7)]
    assert kept([sent, [*sent[2:], event("b:9", 9, 900, server_id=2)]]) == [6, 1]
    assert kept([[e] for e in sent] + [[e] for e in sent]) == [1] * 6 + [0] * 6


@pytest.mark.parametrize("batches", [1, 2])
def test_transaction_that_continues_in_another_file_is_one_that_was_interrupted(batches: int) -> None:
    """Its events may be recorded twice, so a table without a key must not go on."""
    log, progress = [*SENT, event("a:4", 10, 100)], dict[int, PartitionProgress]()
    if batches == 2:
        progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in run(SENT).progress.items()}
        log = log[3:]
    assert run(log, progress).resumed is not None
    assert run(SENT).resumed is None


def test_transaction_that_a_replica_wrote_late_is_new_on_another_one() -> None:
    """The first replica had a:4 before a:3, and ended within a:4; the second one has a:3 at a lower position."""
    assert kept([SENT, [event("a:3", 3, 100), event("a:4", 3, 200), event("a:5", 3, 300)]]) == [3, 3]


def test_members_of_a_replication_group_take_turns() -> None:
    """They share the origin, and have numbers of different blocks; times of two members may differ."""
    group = [("a:300", 1000), ("a:301", 1010), ("a:1000051", 1020), ("a:302", 1015), ("a:1000052", 1020)]
    sent = [
        event(gtid, 9, 100 * i, server_id=1 + len(gtid) // 8, ts_ms=t) for i, (gtid, t) in enumerate(group, 1)
    ]
    assert kept([sent]) == [5]
    assert kept([[e] for e in sent]) == [1] * 5
    assert kept([sent, [*sent[2:], event("a:303", 9, 900, ts_ms=1020)]]) == [5, 1]


def test_numbers_that_begin_again_are_new() -> None:
    """After RESET BINARY LOGS AND GTIDS."""
    reset = [event("a:1", 1, 100, ts_ms=2000), event("a:2", 1, 200, ts_ms=2000)]
    assert kept([SENT, reset, [reset[1], event("a:3", 1, 300, ts_ms=2000)]]) == [3, 2, 1]


def test_change_that_could_not_be_decoded_is_not_applied_after_later_ones() -> None:
    bad = DecodedEvent("bad", 9, 150, gtid="a:2")
    sent = [event("a:1", 9, 100), bad, event("a:3", 9, 300)]
    assert kept([sent, [event("a:2", 9, 150), event("a:3", 9, 300), event("a:4", 9, 400)]]) == [2, 1]


def test_transactions_of_two_files_are_redelivered_by_the_same_server() -> None:
    """The last transaction of the first file is not one that a fail-over interrupted."""
    sent = [event(f"a:{n}", 9 + (n > 5), 100 * n) for n in range(2, 10)]
    log = [*sent, *sent]
    for first in range(len(log)):
        for second in range(first, len(log)):
            batches = [log[:first], log[first:second], log[second:]]
            assert sum(kept([batch for batch in batches if batch])) == len(sent), (first, second)


@dataclass(frozen=True)
class Answers:
    """A binlog that gives one answer, or none."""

    answer: bool | SourceUnavailable | None
    must_answer: bool = True

    def may_be_compressed(self, _: SourcePosition) -> bool:
        return False

    def has_both(self, _event: SourcePosition, _later: SourcePosition, *, waits: bool = True) -> bool | None:
        if isinstance(self.answer, SourceUnavailable):
            if waits:
                raise self.answer
            return None
        return self.answer


@dataclass(frozen=True)
class Positions:
    """A binlog that has transactions at some positions."""

    transactions: dict[int, str]
    must_answer: bool = True

    def may_be_compressed(self, _: SourcePosition) -> bool:
        return False

    def has_both(self, event: SourcePosition, later: SourcePosition, *, waits: bool = True) -> bool | None:  # noqa: ARG002
        own = self.transactions.get(event.pos)
        return None if own is None else self.transactions.get(later.pos) == own


def test_table_waits_for_the_source_if_a_transaction_goes_back() -> None:
    log = [event("a:1", 9, 100), event("a:1", 9, 120), event("a:1", 9, 110)]
    with pytest.raises(SourceUnavailable):
        run(log, binlog=Answers(SourceUnavailable("cannot reach MySQL")))
    with pytest.raises(TransactionInterrupted):
        run(log, binlog=Answers(None))
    assert sum(run(log, binlog=Answers(None, must_answer=False)).events.values()) == 2
    assert sum(run(log, binlog=Answers(True)).events.values()) == 2
    assert sum(run(log, binlog=Answers(False)).events.values()) == 3


@pytest.mark.parametrize("cut", [3, 4, 5])
def test_replay_that_comes_past_the_furthest_position_is_another_servers(cut: int) -> None:
    """It sends the furthest transaction at higher positions, which may be the whole of it: the source tells."""
    log = [*SENT, event("a:2", 9, 250), event("a:4", 9, 350), event("a:4", 9, 370), event("a:5", 9, 400)]

    def last_part(binlog: Binlog) -> BatchStats:
        progress = {
            p: PartitionProgress(s.next_offset, again(s))
            for p, s in run(log[:cut], binlog=binlog).progress.items()
        }
        return run(log[cut:], progress, binlog=binlog)

    def binlog(*pos: int, must_answer: bool = True) -> Positions:
        return Positions(dict.fromkeys(pos, "a:4"), must_answer)

    resumed = [run(log, binlog=binlog(350, 370)).resumed, run(log[:5], binlog=binlog(350)).resumed]
    assert [at and at.pos for at in resumed] == [350, 350]
    assert (last_part(binlog(350, 370)).resumed is None) == (cut == 5)
    other = Positions({300: "a:3", 350: "a:4", 370: "a:4"})
    assert run(log, binlog=other).resumed is not None
    same = binlog(300, 350, 370)
    assert run(log, binlog=same).resumed is None
    assert last_part(same).resumed is None
    assert sum(run(log, binlog=same).events.values()) == sum(run(log, binlog=other).events.values()) == 6
    assert run(log, binlog=binlog()).resumed is not None
    unknown = binlog(must_answer=False)
    assert run(log, binlog=unknown).resumed is None
    assert last_part(unknown).resumed is None


@pytest.mark.parametrize("log", [[350, 370], [350, 370, 320], [350, 370, 340, 350, 370]])
@pytest.mark.parametrize("must_answer", [True, False])
def test_batch_that_begins_within_a_transaction_is_another_servers_if_it_lacks_what_came_before(
    log: list[int], must_answer: bool
) -> None:
    """No other event came again: the connector had recorded the end of the transaction before."""
    first = run(SENT)
    progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in first.progress.items()}
    events = [event("a:4", 9, pos) for pos in log]

    def resumed(found: dict[int, str] | SourceUnavailable) -> bool:
        binlog = Positions(found, must_answer) if isinstance(found, dict) else Answers(found, must_answer)
        return run(events[:2], progress, binlog=binlog).resumed is not None

    other = dict.fromkeys(range(310, 380), "a:4")
    assert resumed(other)
    assert resumed({300: "a:3", **other})
    assert not resumed({300: "a:4", **other})
    assert not resumed({})
    assert not resumed(SourceUnavailable("cannot reach MySQL"))
    same = Positions({300: "a:4", **other})
    assert sum(run(events, progress, binlog=same).events.values()) == 2


def test_table_pauses_if_another_server_sends_new_transactions_before_the_rest_of_an_older_one() -> None:
    """It does not preserve the order of commits; a:2 may have been interrupted."""
    log = [*SENT[:2], event("a:3", 9, 1000), event("a:2", 9, 1100)]
    with pytest.raises(TransactionInterrupted):
        run(log, binlog=Answers(True))
    assert sum(run(log, binlog=Answers(False)).events.values()) == 3


@pytest.mark.parametrize("cut", [3, 4, 5])
@pytest.mark.parametrize("answer", [True, None])
def test_table_pauses_if_another_server_sends_a_transaction_again_that_ended_an_earlier_file(
    cut: int, answer: bool | None
) -> None:
    """Nothing tells whether a:2 was interrupted, or sent as a whole: then it must not be applied after a:3."""
    sent = [event("a:1", 8, 100), event("a:2", 8, 200), event("a:3", 9, 100), event("a:4", 9, 200)]
    log = [*sent, *(event(f"a:{n}", 10, 100 * n) for n in (1, 2, 3, 4, 5))]
    binlog = Answers(answer, must_answer=False)
    first = run(log[:cut], binlog=binlog)
    progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in first.progress.items()}
    with pytest.raises(TransactionInterrupted, match="a:2"):
        run(log[cut:], progress, binlog=binlog)
    with pytest.raises(TransactionInterrupted, match="a:2"):
        run(log, binlog=binlog)


@dataclass
class Cluster:
    """Servers that replicate each other, and a connector that reads one of them at a time.

    Attributes:
        logs: the binlog of each server: transactions in their order.
        files: number of the binlog file of each server; some servers have the same one.
        touched: the transactions that change the table.
        sent: the transactions that the connector sent, in their order, as far as it remembers.
        begun: a transaction within which it was interrupted, and how many of its events it had sent.
        must_answer: whether a table waits for the source's answer.
        answers: whether the source tells what its binlog has.
    """

    random: random.Random
    logs: list[list[Gtid]]
    files: list[int]
    touched: set[Gtid]
    must_answer: bool
    answers: bool
    server: int = 0
    sent: list[Gtid] = field(default_factory=list)
    begun: tuple[Gtid, int] | None = None

    @classmethod
    def random_one(cls, seed: int) -> "Cluster":
        r = random.Random(seed)
        # All servers begin with the first transaction of each origin: nothing is known of lower numbers.
        commits = [("a", 1), ("b", 1), ("c", 1)]
        numbers = Counter("abc")
        for _ in range(r.randint(5, 60)):
            origin = r.choice("abc"[: r.randint(1, 3)])
            numbers[origin] += 1
            commits.append((origin, numbers[origin]))
        # Some replicas do not preserve the order of commits.
        files = r.choices(range(1, 5), k=3)
        shared = {i for i in range(3) if files.count(files[i]) > 1}
        ways = r.choices((0, 0, 3), k=3)
        logs = [
            [g for _, g in sorted((i + r.uniform(0, way) * (i > 2), g) for i, g in enumerate(commits))]
            for way in ways
        ]
        touched = {g for g in commits if g[1] == 1 or r.random() < 0.7}
        must_answer = bool(shared) or r.random() < 0.5
        return cls(r, logs, files, touched, must_answer, answers=r.random() < 0.7)

    def read(self, most: int) -> list[DecodedEvent]:
        """Send transactions that the connector has not, in the order of the server's binlog."""
        have, events = set(self.sent), []
        left = [gtid for gtid in self.logs[self.server] if gtid not in have]
        for gtid in left[:most]:
            self.sent.append(gtid)
            # A restarted connector sends a transaction from where it was, or from its beginning.
            skipped = self.begun[1] if self.begun is not None and self.begun[0] == gtid else 0
            events += self._events(gtid)[self.random.randint(0, skipped) :]
        self.begun = None
        if left[most:] and left[most] in self.touched and self.random.random() < 0.5:
            self.begun = left[most], self.random.randrange(_rows(left[most]))
            events += self._events(left[most])[: self.begun[1]]
        return events

    def _events(self, gtid: Gtid) -> list[DecodedEvent]:
        if gtid not in self.touched:
            return []
        (origin, n), start = gtid, self._start(gtid)
        name, number = f"{origin}:{n}", ord(origin)
        return [
            DecodedEvent("u", self.files[self.server], start + row, gtid=name, server_id=number, content=row)
            for row in range(_rows(gtid))
        ]

    def _start(self, gtid: Gtid) -> int:
        """Return the position of a transaction. Servers have some transactions at nearly the same position."""
        return 10 * (1 + self.logs[self.server].index(gtid)) + self.server

    def may_be_compressed(self, _: SourcePosition) -> bool:
        return False

    def has_both(self, event: SourcePosition, later: SourcePosition, *, waits: bool = True) -> bool | None:
        """Return whether the server that is read has both positions in one transaction."""
        if not self.answers and self.must_answer and waits:
            raise SourceUnavailable("cannot reach MySQL")
        if not self.answers or binlog_number(event.file) != self.files[self.server]:
            return None
        for gtid in self.touched:
            found = range(self._start(gtid), self._start(gtid) + _rows(gtid))
            if event.pos in found:
                return later.pos in found
        return None

    def restart(self) -> bool:
        """Forget some of the transactions that were sent; return whether another server is read from now on."""
        before, self.server = self.server, self.random.randrange(3)
        if forgotten := self.random.choice((0, 0, self.random.randint(0, 12))):
            self.begun = None
            del self.sent[max(0, len(self.sent) - forgotten) :]
        return self.server != before


@dataclass
class Mirror:
    """Counts the events of each transaction that were not delivered before, until it pauses or waits."""

    cluster: Cluster
    found: Counter[tuple[Gtid, int]] = field(default_factory=Counter)
    last: Gtid | None = None
    progress: dict[int, PartitionProgress] = field(default_factory=dict)
    paused: bool = False

    def apply(self, events: list[DecodedEvent]) -> None:
        """Apply events in batches of any size."""
        while events and not self.paused:
            size = self.cluster.random.randint(1, 20)
            self._apply_batch(events[:size])
            events = events[size:]

    def _apply_batch(self, batch: list[DecodedEvent]) -> None:
        start = self.progress[0].next_offset if self.progress else 0
        try:
            stats = run(batch, self.progress, tail=self.cluster.random.choice((1, 16)), binlog=self.cluster)
        except (TransactionInterrupted, SourceUnavailable):
            self.paused = True
            return
        self.progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in stats.progress.items()}
        repeated = {o - start for d in stats.duplicates for o in range(d.first, d.last + 1)}
        for i, e in enumerate(batch):
            origin, _, number = (e.gtid or "").partition(":")
            if i not in repeated:
                self.last = origin, int(number)
                self.found[self.last, e.content] += 1


def _rows(gtid: Gtid) -> int:
    return 1 + gtid[1] % 4


@pytest.mark.parametrize("seed", range(300))
def test_each_change_is_kept_once_whatever_server_sends_it(seed: int) -> None:
    """The last transaction before a fail-over may be kept twice: the connector may have been interrupted within it."""
    cluster = Cluster.random_one(seed)
    mirror, switched, last = Mirror(cluster), False, set[Gtid | None]()
    for _ in range(cluster.random.randint(1, 6)):
        mirror.apply(cluster.read(cluster.random.randint(0, 30)))
        switched = cluster.restart() or switched
        last |= {mirror.last} if switched else set()
    mirror.apply(cluster.read(1000))
    if mirror.paused:
        return
    expected = [(gtid, row) for gtid in cluster.touched for row in range(_rows(gtid))]
    assert [change for change in expected if not mirror.found[change]] == [], "lost"
    assert {gtid for (gtid, _), times in mirror.found.items() if times > 1} <= last, "kept twice"
