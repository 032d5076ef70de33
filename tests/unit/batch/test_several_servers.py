"""Redelivered transactions of several servers, whose binlogs have them at other positions and in another order."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from replicator.errors import TransactionInterrupted
from replicator.model.commit_marker import PartitionProgress
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
def test_fail_over_without_redelivered_transactions_has_new_events(file: int) -> None:
    later = [event("a:5", file, 1200), event("a:6", file, 1400)]
    assert kept([SENT, later]) == [3, 2]
    assert kept([SENT + later]) == [5]


@pytest.mark.fault(
    "The connector sends transactions of two servers, which alternate in one binlog, again",
    area="Source",
    on="events by hand",
    outcome="each is applied once",
)
def test_transactions_are_redelivered_in_a_log_of_two_origins() -> None:
    sent = [event(f"{'ab'[n % 2]}:{n}", 9, 100 * n, server_id=1 + n % 2) for n in range(1, 7)]
    assert kept([sent, [*sent[2:], event("b:9", 9, 900, server_id=2)]]) == [6, 1]
    assert kept([[e] for e in sent] + [[e] for e in sent]) == [1] * 6 + [0] * 6


def test_transaction_that_a_replica_wrote_late_is_new_on_another_one() -> None:
    """The first replica had a:4 before a:3; the second one has a:3 at a lower position."""
    assert kept([SENT, [event("a:3", 3, 100), event("a:5", 3, 300)]]) == [3, 2]
    # The first one may have ended within a:4.
    with pytest.raises(TransactionInterrupted):
        run([*SENT, event("a:3", 3, 100), event("a:4", 3, 200)])


def test_members_of_a_replication_group_take_turns() -> None:
    """They share the origin, and have numbers of different blocks; times of two members may differ."""
    group = [("a:300", 1000), ("a:301", 1010), ("a:1000051", 1020), ("a:302", 1015), ("a:1000052", 1020)]
    sent = [
        event(gtid, 9, 100 * i, server_id=1 + len(gtid) // 8, ts_ms=t) for i, (gtid, t) in enumerate(group, 1)
    ]
    assert kept([sent]) == [5]
    assert kept([[e] for e in sent]) == [1] * 5
    assert kept([sent, [*sent[2:], event("a:303", 9, 900, ts_ms=1020)]]) == [5, 1]


def test_change_that_could_not_be_decoded_is_not_applied_after_later_ones() -> None:
    bad = DecodedEvent("bad", 9, 150, gtid="a:2")
    sent = [event("a:1", 9, 100), bad, event("a:3", 9, 300)]
    assert kept([sent, [event("a:2", 9, 150), event("a:3", 9, 300), event("a:4", 9, 400)]]) == [2, 1]


def assert_interrupted(log: list[DecodedEvent]) -> None:
    """Assert that the last event shows that a fail-over interrupted a transaction, however batches divide the log."""
    for cut in range(1, len(log)):
        first = run(log[:-1] if cut == len(log) - 1 else log[:cut])
        progress = {p: PartitionProgress(s.next_offset, again(s)) for p, s in first.progress.items()}
        with pytest.raises(TransactionInterrupted):
            run(log[cut:], progress)
    with pytest.raises(TransactionInterrupted):
        run(log)


@pytest.mark.parametrize("file", [3, 12])
def test_the_furthest_transaction_comes_from_another_server(file: int) -> None:
    """Its events may be the rest of it, or come again after a worker's crash: applied, they would be there twice."""
    assert_interrupted([*SENT, event("a:4", file, 1300)])
    assert_interrupted([*SENT, event("a:2", file, 1200), event("a:5", file, 1400)])
    assert_interrupted([*SENT, event("a:2", file, 1200), event("a:4", file, 1300)])


@pytest.mark.parametrize("later", [("a:4", 340), ("a:5", 400), ("a:5", 150)])
@pytest.mark.parametrize("pos", [[250], [250, 280], [150]])
def test_something_new_before_the_furthest_event_comes_again_shows_another_server(
    pos: list[int], later: tuple[str, int]
) -> None:
    """It has the transaction at lower positions in a file with the same number; what was skipped may be missing."""
    log = [*SENT[:2], event("a:4", 9, 290), event("a:4", 9, 300), *(event("a:4", 9, p) for p in pos)]
    assert_interrupted([*log, event(later[0], 9, later[1])])
    assert_interrupted([*log, event(later[0], 9, later[1], ts_ms=2000)])


def test_replay_of_the_same_server_comes_past_the_furthest_event() -> None:
    """Also if the connector restarts again during the replay."""
    rows = [event("a:4", 9, pos) for pos in (300, 310, 320)]
    rest = [event("a:4", 9, 330), event("a:5", 9, 400)]
    log = [*SENT[:2], *rows, SENT[1], rows[0], SENT[1], *rows, *rest]
    assert kept([log]) == [7]
    assert sum(kept([[e] for e in log])) == 7


def test_another_server_sends_new_transactions_before_the_rest_of_an_older_one() -> None:
    """It does not preserve the order of commits; a:2 may have been interrupted."""
    assert_interrupted([*SENT[:2], event("a:3", 9, 1000), event("a:2", 9, 1100), event("a:5", 9, 1200)])


def test_another_server_sends_a_transaction_again_that_ended_an_earlier_file() -> None:
    """Nothing tells whether a:2 was interrupted, or sent as a whole: then it must not be applied after a:3."""
    sent = [event("a:1", 8, 100), event("a:2", 8, 200), event("a:3", 9, 100), event("a:4", 9, 200)]
    assert_interrupted([*sent, event("a:1", 10, 100), event("a:2", 10, 200)])


@dataclass
class Cluster:
    """Servers that replicate each other, and a connector that reads one of them at a time.

    Attributes:
        logs: the binlog of each server: transactions in their order.
        files: number of the binlog file of each server; some servers have the same one.
        touched: the transactions that change the table.
        sent: the transactions that the connector sent, in their order, as far as it remembers.
        begun: a transaction within which it was interrupted, and how many of its events it had sent.
    """

    random: random.Random
    logs: list[list[Gtid]]
    files: list[int]
    touched: set[Gtid]
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
        ways = r.choices((0, 0, 3), k=3)
        logs = [
            [g for _, g in sorted((i + r.uniform(0, way) * (i > 2), g) for i, g in enumerate(commits))]
            for way in ways
        ]
        touched = {g for g in commits if g[1] == 1 or r.random() < 0.7}
        return cls(r, logs, files, touched)

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
        """Return the position of a transaction. Servers have some transactions at nearly the same position.

        No event of one server is where another one has an event of the same transaction: nothing would tell them apart.
        """
        return 12 * (1 + self.logs[self.server].index(gtid)) + 4 * self.server

    def restart(self) -> bool:
        """Forget some of the transactions that were sent; return whether another server is read from now on."""
        before, self.server = self.server, self.random.randrange(3)
        if forgotten := self.random.choice((0, 0, self.random.randint(0, 12))):
            self.begun = None
            del self.sent[max(0, len(self.sent) - forgotten) :]
        return self.server != before


@dataclass
class Mirror:
    """Counts the events of each transaction that were not delivered before, until it pauses."""

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
            stats = run(batch, self.progress, tail=self.cluster.random.choice((1, 16)))
        except TransactionInterrupted:
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


@pytest.mark.parametrize("seed", range(100))
def test_each_change_is_kept_once_whatever_server_sends_it(seed: int) -> None:
    """If files of two servers have the same number, the last transaction before a fail-over may be kept twice."""
    cluster = Cluster.random_one(seed)
    mirror, switched, last = Mirror(cluster), False, set[Gtid | None]()
    for _ in range(cluster.random.randint(1, 6)):
        mirror.apply(cluster.read(cluster.random.randint(0, 30)))
        switched = cluster.restart() or switched
        last |= {mirror.last} if switched else set()
    mirror.apply(cluster.read(1000))
    high = mirror.progress[0].high_water if mirror.progress else None
    if mirror.paused or (high is not None and high.is_replay):
        # After a replay that did not come to its end, the next event would pause the table.
        return
    expected = [(gtid, row) for gtid in cluster.touched for row in range(_rows(gtid))]
    assert [change for change in expected if not mirror.found[change]] == [], "lost"
    twice = {gtid for (gtid, _), times in mirror.found.items() if times > 1}
    if len(set(cluster.files)) < 3:
        twice -= last
    assert not twice, "kept twice"
