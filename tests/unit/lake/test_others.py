"""The line of snapshots of a table, and the commits that it contains."""

import pytest

from replicator.lake.others import LineSnapshot, is_in_line


def line(*ids: int, parent: int | None = None) -> list[LineSnapshot]:
    """Return snapshots whose sequence numbers are their ids, the newest first; `parent` is that of the oldest."""
    parents = (*ids[1:], parent)
    return [LineSnapshot(i, p, i) for i, p in zip(ids, parents, strict=True)]


@pytest.mark.parametrize(
    ("known", "snapshot", "expected"),
    [
        (line(3, 2, 1), 3, True),
        (line(3, 2, 1), 1, True),
        (line(1), 2, False),
        (line(4, 1), 2, False),
        (line(4, 1), 3, False),
        (line(4), 2, False),
        (line(4, parent=3), 2, True),
        (line(4, parent=3), 5, False),
        ([], 1, False),
    ],
)
def test_snapshot_is_in_the_line_unless_another_one_took_its_place(
    known: list[LineSnapshot], snapshot: int, expected: bool
) -> None:
    assert is_in_line(iter(known), snapshot, snapshot) is expected


def test_no_more_of_the_line_is_read_than_necessary() -> None:
    known = iter(line(5, 4, 3, 2, 1))
    assert not is_in_line(known, 9, 3)
    assert [found.id for found in known] == [2, 1]
