"""The line of snapshots that led to the current one, and what it says about a commit. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineSnapshot:
    """A snapshot of a lake table.

    Attributes:
        id, parent: its id, and that of the snapshot before it; no parent if it is the first of its line.
        sequence: Iceberg's sequence number, which ascends with each commit to the table.
    """

    id: int
    parent: int | None
    sequence: int


def is_in_line(line: Iterable[LineSnapshot], snapshot_id: int, sequence: int) -> bool:
    """Return whether a snapshot led to the current one; `line` has the known snapshots, the current one first.

    A line whose older part was deleted may contain every older snapshot. No more of `line` is taken than necessary.
    """
    known = None
    for known in line:
        if known.id == snapshot_id:
            return True
        if known.sequence <= sequence:
            return False
    return known is not None and known.parent is not None
