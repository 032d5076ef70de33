"""Which of the recent ends of the log a refresh goes to."""

from collections.abc import Sequence

import pytest

from replicator.errors import ConnectError, Unsettled
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.inputs.recent_ends import KEPT, RecentEnds, newest_reached


def ends(pos: int) -> LogEnds:
    return LogEnds(Boundary("mysql-bin.000001", pos), {}, "shop")


def is_reached(of: LogEnds, reached: int) -> bool:
    return of.boundary.pos <= reached


@pytest.mark.parametrize(
    ("inputs", "results", "found"),
    [
        # Each input has reached the ends up to its number: the slowest decides.
        ([300], [], 300),
        ([300, 200], [], 200),
        ([500, 100], [], 100),
        # One that is far behind stops its own pipelines only, which wait at any boundary.
        ([300, 50], [], 300),
        ([50], [], 400),
        ([], [], 400),
        # A result does not go back.
        ([400], [300, 200], 400),
        ([300], [300, 200], 300),
        ([200], [300], 400),
        ([200, 300], [300], 300),
        # As long as few ends are known, later ones may be those of another process.
        ([300], [9000], 400),
        # A result that was refreshed while no position was known has none.
        ([300], [None], 300),
        ([300], [None, 200], 300),
    ],
)
def test_a_refresh_goes_to_the_newest_ends_that_its_inputs_have_reached(
    inputs: Sequence[int], results: Sequence[int | None], found: int
) -> None:
    known = [ends(pos) for pos in (100, 200, 300, 400)]
    boundaries = [Boundary() if pos is None else ends(pos).boundary for pos in results]
    assert newest_reached(known, inputs, boundaries, is_reached) == ends(found)


def test_positions_of_another_server_do_not_stop_pipelines_whose_source_changes_all_the_time() -> None:
    known = [ends(pos) for pos in range(100, 100 + KEPT)]
    later = [ends(9000).boundary]
    assert newest_reached(known[:-1], [105], later, is_reached) == known[-2]
    assert newest_reached(known, [105], later, is_reached) == ends(105)


def test_why_no_ends_are_known_is_told_until_some_are() -> None:
    answers: list[LogEnds | Exception] = [
        ConnectError("gone", "start it"),
        ends(5),
        ConnectError("gone again"),
    ]

    def read() -> LogEnds:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recent = RecentEnds(read)
    with pytest.raises(Unsettled, match="not known yet"):
        recent.reached([], [])
    with pytest.raises(ConnectError):
        recent.update()
    with pytest.raises(ConnectError, match="gone"):
        recent.reached([], [])
    recent.update()
    assert recent.reached([], []) == ends(5)
    # The mirrors still have what was before the last known ends.
    with pytest.raises(ConnectError):
        recent.update()
    assert recent.reached([], []) == ends(5)
