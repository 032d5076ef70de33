"""The rounds of pipelines."""

import pytest

from replicator.runner.pipelines import reach_time


@pytest.mark.parametrize(("every", "expected"), [(0.5, 20), (2, 20), (60, 60)])
def test_a_boundary_stays_longer_than_a_batch_takes_however_often_pipelines_are_refreshed(
    every: float, expected: float
) -> None:
    assert reach_time(every) == expected
