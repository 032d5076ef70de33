"""Arrays of events are assigned to schema versions by the rules for single events."""

import random

import pyarrow as pa

from replicator.decode.schemas.versions import Places, is_in_range, is_past
from replicator.model.gtid import BLOCK
from replicator.model.position import SourcePosition
from replicator.schema.history.order import CLOCK_MS, Boundary, VersionStart, binlog_key

T0 = 1_700_000_000_000
A, B = (f"{letter * 8}-1111-1111-1111-111111111111" for letter in "ab")


def test_arrays_have_the_rules_of_single_values() -> None:
    chance = random.Random(4)

    def gtid() -> str | None:
        choice = chance.choice([None, A, B, f"{A}:tag", "odd"])
        number = chance.randrange(1, 5) + chance.choice([0, 0, BLOCK - 2, BLOCK])
        return choice if choice in (None, "odd") else f"{choice}:{number}"

    def time() -> int:
        near = chance.choice([0, CLOCK_MS, CLOCK_MS + 1])
        return chance.choice([0, T0, T0 + near, T0 - near])

    def key() -> int:
        return binlog_key(SourcePosition(f"b.{chance.randrange(1, 4):06d}", 100))

    def keys() -> frozenset[int]:
        return frozenset(key() for _ in range(chance.choice((0, 0, 1, 2))))

    starts = tuple(VersionStart(key(), gtid(), time(), keys()) for _ in range(12))
    events = [
        (
            SourcePosition(f"b.{chance.randrange(1, 4):06d}", 100, 0, chance.choice((0, 1)), gtid()),
            time(),
        )
        for _ in range(300)
    ]
    source = {
        "file": pa.array([p.file for p, _ in events]),
        "pos": pa.array([p.pos for p, _ in events], pa.int64()),
        "row": pa.nulls(len(events), pa.int32()),
        "server_id": pa.array([p.server_id or None for p, _ in events], pa.int64()),
        "gtid": pa.array([p.gtid for p, _ in events], pa.string()),
        "ts_ms": pa.array([ts_ms for _, ts_ms in events], pa.int64()),
    }
    places = Places.of(source)
    boundaries = [Boundary(i, starts[i:]) for i in (4, 8)]
    ranges = [(None, boundaries[0]), (boundaries[0], boundaries[1]), (boundaries[1], None)]
    past = [is_past(places, (start,)) for start in starts]
    inside = [is_in_range(places, *bounds) for bounds in ranges]
    for i, (position, ts_ms) in enumerate(events):
        wanted = [start.is_before(position, ts_ms, is_row=not position.server_id) for start in starts]
        assert [found[i] for found in past] == wanted, (position, ts_ms)
        # Each event is in exactly one range.
        assert [found[i] for found in inside].count(True) == 1
