"""Checks of the replicas whose lag is limited."""

from replicator.errors import PrivilegeError, SourceUnavailable
from replicator.operations.check.tables import ReplicaFacts, check_replicas
from replicator.sources.mysql.replication import ReplicaLag
from tests.support.config import minimal_config


def checked(*facts: ReplicaFacts, limit: str | None = "5 s") -> list[tuple[str, str, str]]:
    config = minimal_config(bootstrap={} if limit is None else {"max_replica_lag": limit})
    return [(r.name, r.status, r.found) for r in check_replicas(facts, config)]


def replica(lag: ReplicaLag | None = None, **other: object) -> ReplicaFacts:
    return ReplicaFacts("r:3306", False, "replicator", lag, **other)  # type: ignore[arg-type]


SOURCE = ReplicaFacts("h:3306", True, "replicator")


def test_lag_of_replicas_is_shown_and_compared_with_the_limit() -> None:
    assert checked(SOURCE, replica(ReplicaLag(5))) == [("replicas: r:3306", "ok", "5 s behind")]
    assert checked(SOURCE, replica(ReplicaLag(6)))[0][1:] == ("warn", "6 s behind")
    assert checked(SOURCE, replica(ReplicaLag(None)))[0][1:] == ("warn", "its replication does not run")
    assert checked(SOURCE, replica())[0][1:] == ("fail", "is no replica")
    assert checked(SOURCE, replica(), limit=None) == []


def test_missing_privilege_is_named() -> None:
    (result,) = check_replicas(
        [SOURCE, replica(error=PrivilegeError("the user lacks it"))],
        minimal_config(bootstrap={"max_replica_lag": "5 s"}),
    )
    assert (result.status, result.found) == ("fail", "the user lacks it")
    assert "GRANT REPLICATION CLIENT ON *.*" in result.next_step


def test_replica_that_cannot_be_reached_fails_once() -> None:
    error = SourceUnavailable("cannot be reached", "start it")
    assert checked(ReplicaFacts("h:3306", True, "u", error=error)) == []
    assert checked(SOURCE, replica(error=error)) == [("replicas: r:3306", "fail", "cannot be reached")]


def test_limit_without_a_replica_has_no_effect() -> None:
    assert checked(SOURCE) == [
        (
            "replicas: lag",
            "warn",
            "the source is no replica, and bootstrap.replica_urls names none",
        )
    ]
    assert checked(ReplicaFacts("h:3306", True, "u", ReplicaLag(0))) == [
        ("replicas: h:3306", "ok", "0 s behind")
    ]
