"""When a failed connector is restarted, and when a run stops waiting for it."""

import pytest

from replicator.sources.connector.policy import MISSING, UNREACHABLE, Observation, Patience, RestartPolicy

RUNNING = Observation("RUNNING", name="shop")
LOST = Observation("FAILED", "Failed to read next byte from position 651", "shop")
BROKEN = Observation("FAILED", "a column that nobody knows", "shop")


def restarts(seen: Observation, until: float, policy: RestartPolicy | None = None) -> list[float]:
    """Return the seconds at which a connector that is observed every second is restarted."""
    policy = policy or RestartPolicy()
    return [t for t in range(int(until)) if policy.pause_after_restart(seen, float(t)) is not None]


def test_connector_is_restarted_every_five_seconds_when_it_lost_mysql() -> None:
    assert restarts(LOST, 20) == [0, 1, 3, 8, 13, 18]


@pytest.mark.parametrize(
    "state", ["RUNNING", "PAUSED", "STOPPED", "RESTARTING", "UNASSIGNED", MISSING, UNREACHABLE]
)
def test_connector_is_not_restarted_when_it_has_not_failed(state: str) -> None:
    assert restarts(Observation(state, name="shop"), 100) == []


def test_backoff_continues_when_the_connector_ran_for_three_seconds() -> None:
    policy = RestartPolicy()
    assert restarts(BROKEN, 16, policy) == [0, 5, 15]
    policy.pause_after_restart(RUNNING, 17.0)
    assert policy.pause_after_restart(BROKEN, 20.0) is None


def given_up(*seen: tuple[float, Observation, object]) -> float | None:
    """Return the second at which a run ends its wait, or None; `seen` has (begin, state, progress)."""
    patience = Patience(0.0)
    for t in range(3600):
        state, progress = next((state, p) for begin, state, p in reversed(seen) if t >= begin)
        if patience.judge(state, progress, float(t)) is not None:
            return t
    return None


@pytest.mark.parametrize("state", ["MISSING", "PAUSED", "STOPPED"])
def test_run_waits_only_five_seconds_for_a_connector_that_a_user_must_start(state: str) -> None:
    assert given_up((0, Observation(state), 1)) == 5


def test_run_waits_150_seconds_after_progress_when_a_failure_has_ended() -> None:
    assert given_up((0, LOST, 1), (20, RUNNING, 2)) == 20 + 150


def test_patience_returns_a_reason_with_a_next_step() -> None:
    found = Patience(0.0)
    assert found.judge(Observation("MISSING"), 1, 0.0) is None
    gone = found.judge(Observation("MISSING"), 1, 6.0)
    assert gone is not None
    assert (gone.reason, gone.next_step) == ("no connector has this topic prefix", "run: replicator connect")
    assert LOST.describe() == "the connector shop is FAILED: Failed to read next byte from position 651"
    assert "MySQL is running" in (LOST.next_step() or "")
