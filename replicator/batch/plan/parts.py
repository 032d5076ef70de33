"""Cut the first part off offset ranges. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from replicator.model.commit_marker import OffsetRange


def first_part(ranges: Sequence[OffsetRange], share: int) -> dict[int, int]:
    """Return partition → end of the first `share` events of `ranges`, divided in proportion to the partitions' events.

    Each range gets at least one event: a table that was renamed waits for events under its old name only if there are
    any in the round.
    """
    total = sum(r.count for r in ranges)
    return {r.partition: r.start + -(-r.count * min(share, total) // total) for r in ranges}


def first_ranges(ranges: Sequence[OffsetRange], share: int) -> tuple[OffsetRange, ...]:
    """Return the first `share` events of `ranges`; see `first_part`."""
    ends = first_part(ranges, share) if ranges else {}
    return tuple(replace(r, end=ends[r.partition]) for r in ranges)


def begun_ends(ranges: Sequence[OffsetRange], begun: Sequence[OffsetRange]) -> dict[int, int] | None:
    """Return partition → end of what was begun; None if it is not the beginning of each of `ranges`."""
    known = {(r.topic, r.partition): r for r in begun if r.count}
    if len(known) != len(ranges):
        return None
    for r in ranges:
        found = known.get((r.topic, r.partition))
        if found is None or found.start != r.start or found.end > r.end:
            return None
    return {r.partition: r.end for r in known.values()}
