"""The part of an archive up to a moment equals what a search of all events finds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.model.moments import parse_as_of
from replicator.sources.archive.format import Event
from replicator.sources.archive.moments import Moments
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

ORDERS, ITEMS, DDL = "shop.shop.orders", "shop.shop.items", "shop"
UUID = "e95b1ac8-e5bc-11f1-811f-02fc00000001"


@dataclass(frozen=True)
class Change:
    """An event of the source: its topic and partition, transaction, position and time."""

    topic: str
    partition: int
    transaction: int
    pos: int
    ts_ms: int


def value(change: Change, *, gtids: bool) -> bytes:
    gtid = f"{UUID}:{change.transaction}" if gtids else None
    source = {"file": "bin.000007", "pos": change.pos, "row": 0, "ts_ms": change.ts_ms, "gtid": gtid}
    return json.dumps({"before": None, "after": {"id": 1}, "source": source, "op": "c"}).encode()


def archive(
    path: Path, changes: Sequence[Change], *, gtids: bool = True, max_events: int = 3, indexed: bool = True
) -> Moments:
    """Write the events, with a tombstone after every fifth one, and return the search.

    Without `indexed`, the archive is one of version 2.
    """
    with ArchiveWriter(path, topic_prefix="shop", encoding="json", max_events=max_events) as writer:
        for number, change in enumerate(changes):
            for content in [value(change, gtids=gtids), *([None] if number % 5 == 4 else [])]:
                offset = writer.end_offset(change.topic, change.partition) or 0
                append_event(writer, Event(change.topic, change.partition, offset, 1, None, content))
    if not indexed:
        as_version_2(path)
    return Moments(ArchiveReader(path), "shop")


def as_version_2(path: Path) -> None:
    """Replace the manifest by one of version 2, which has no index."""
    manifest = json.loads((path / "manifest.json").read_text())
    files = {f["path"]: {"events": f["events"], "bytes": f["bytes"]} for f in manifest["files"]}
    for topic, partitions in manifest["topics"].items():
        for partition, entry in partitions.items():
            entry["files"] = [
                {"path": file["path"], **{name: part[name] for name in ("first", "last", "count")}}
                for file in manifest["files"]
                for part in file["partitions"]
                if (part["topic"], part["partition"]) == (topic, int(partition))
            ]
    del manifest["index"]
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 2, "files": files}))


CHANGES = [
    Change(DDL, 0, 1, 100, 1_000),
    Change(ORDERS, 0, 2, 200, 2_000),
    Change(ORDERS, 1, 2, 210, 2_000),
    Change(ITEMS, 0, 2, 220, 2_000),
    Change(ORDERS, 0, 3, 300, 5_000),
    # A connector that was restarted delivers an event again.
    Change(ORDERS, 0, 2, 200, 2_000),
    Change(DDL, 0, 4, 350, 5_500),
    Change(ITEMS, 0, 5, 400, 6_000),
    # A later transaction with an earlier time.
    Change(ORDERS, 0, 6, 500, 4_000),
    Change(ORDERS, 1, 6, 510, 7_000),
]
ALL = {
    (DDL, 0): [100, 350],
    (ORDERS, 0): [200, 300, 200, 500],
    (ORDERS, 1): [210, 510],
    (ITEMS, 0): [220, 400],
}
AFTER_2 = {(DDL, 0): [100], (ORDERS, 0): [200], (ORDERS, 1): [210], (ITEMS, 0): [220]}
AFTER_5 = {(DDL, 0): [100, 350], (ORDERS, 0): [200, 300, 200], (ORDERS, 1): [210], (ITEMS, 0): [220, 400]}


def positions(path: Path, key: tuple[str, int], end: int) -> list[int]:
    events = ArchiveReader(path).events(*key, 0, end)
    return [json.loads(event.value)["source"]["pos"] for event in events if event.value is not None]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("bin.000007:210", AFTER_2 | {(ITEMS, 0): []}),
        ("bin.000007:300", AFTER_2 | {(ORDERS, 0): [200, 300, 200]}),
        ("bin.000006:999", {key: [] for key in ALL}),
        ("bin.000008:4", ALL),
        (f"{UUID}:2", AFTER_2),
        (f"{UUID.upper()}:5", AFTER_5),
        ("1970-01-01T00:00:04Z", AFTER_2),
        # Transaction 6 has a later change.
        ("1970-01-01T00:00:06", AFTER_5),
        ("2070-01-01", ALL),
    ],
)
def test_ends_of_a_moment(tmp_path: Path, moment: str, expected: dict[tuple[str, int], list[int]]) -> None:
    found = archive(tmp_path, CHANGES).ends(parse_as_of(moment))
    assert {key: positions(tmp_path, key, end) for key, end in found.items()} == expected


def test_search_reads_only_files_whose_index_may_match(tmp_path: Path) -> None:
    changes = [Change(ORDERS, 0, n, 1000 * n, 1000 * n) for n in range(1, 200)]
    moments = archive(tmp_path, changes, max_events=10)
    read: list[str] = []
    original = moments._reader.file_events

    def file_events(name: str) -> Any:
        read.append(name)
        return original(name)

    moments._reader.file_events = file_events  # type: ignore[method-assign]
    for moment in ("bin.000007:100000", f"{UUID}:100", "1970-01-01T00:01:40Z"):
        moments._of_file.cache_clear()
        read.clear()
        found = moments.ends(parse_as_of(moment))
        assert len(positions(tmp_path, (ORDERS, 0), found[ORDERS, 0])) == 100
        assert 1 <= len(read) <= 2


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Return events of ascending positions and transactions, some of which are delivered again later."""
    changes: list[Change] = []
    pos = 4
    for transaction in range(1, draw(st.integers(1, 8)) + 1):
        time = draw(st.integers(1, 9)) * 1000
        for _ in range(draw(st.integers(1, 3))):
            pos += draw(st.integers(1, 9))
            topic = draw(st.sampled_from([ORDERS, ITEMS, DDL]))
            partition = draw(st.integers(0, 1)) if topic == ORDERS else 0
            changes.append(Change(topic, partition, transaction, pos, time))
        if draw(st.booleans()):
            changes += changes[-draw(st.integers(1, 4)) :]
    return changes


def expected_bound(changes: Sequence[Change], moment: str, *, gtids: bool) -> int | None:
    """Return the last position up to the moment, from the definition; None for all."""
    data = [c for c in changes if c.topic != DDL]
    kind, _, number = moment.partition("=")
    if kind == "pos":
        return int(number)
    if kind == "gtid":
        return max(c.pos for c in data if c.transaction == int(number))
    later = [c for c in data if c.ts_ms > int(number)]
    if not later:
        return None
    first = min(later, key=lambda c: c.pos)
    transaction = [c.pos for c in data if c.transaction == first.transaction]
    return (min(transaction) if gtids else first.pos) - 1


@settings(max_examples=25)
@given(
    changes=histories(),
    kind=st.sampled_from(["pos", "gtid", "time"]),
    number=st.integers(0, 80),
    gtids=st.booleans(),
    max_events=st.integers(1, 5),
    indexed=st.booleans(),
)
def test_ends_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[Change],
    kind: str,
    number: int,
    gtids: bool,
    max_events: int,
    indexed: bool,
) -> None:
    gtids |= kind == "gtid"
    transactions = sorted({c.transaction for c in changes if c.topic != DDL})
    if kind == "gtid" and not transactions:
        return
    number = transactions[number % len(transactions)] if kind == "gtid" else number
    number = number % 10 * 1000 if kind == "time" else number
    texts = {
        "pos": f"bin.000007:{number}",
        "gtid": f"{UUID}:{number}",
        "time": f"1970-01-01T00:00:{number // 1000:02}Z",
    }
    path = tmp_path_factory.mktemp("archive")
    moments = archive(path, changes, gtids=gtids, max_events=max_events, indexed=indexed)
    bound = expected_bound(changes, f"{kind}={number}", gtids=gtids)
    found = moments.ends(parse_as_of(texts[kind]))
    reader = ArchiveReader(path)
    for (topic, partition), end in found.items():
        events = list(reader.events(topic, partition))
        known = [(e.offset, json.loads(e.value)["source"]["pos"]) for e in events if e.value is not None]
        beyond = [offset for offset, pos in known if bound is not None and pos > bound]
        assert end == min(beyond, default=reader.end_offsets()[topic, partition])
