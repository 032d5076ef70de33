"""Checks of the replicas whose lag is limited."""

from contextlib import nullcontext
from typing import Any

import pytest

from replicator.errors import PrivilegeError, SourceError, SourceUnavailable
from replicator.operations.check import tables
from replicator.operations.check.result import CheckResult
from replicator.operations.check.tables import check_replicas
from replicator.sources.mysql.replication import ReplicaLag
from tests.support.config import minimal_config

Answer = ReplicaLag | SourceError | None


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what checks a source `h` and, if it is given, a replica `r`, with their answers."""

    def check(source: Answer, replica: Answer | str = "none") -> list[CheckResult]:
        answers = {"h:3306": source, "r:3306": replica}

        def read(name: str) -> Answer | str:
            if isinstance(answer := answers[name], SourceError):
                raise answer
            return answer

        monkeypatch.setattr(tables, "connect_to", lambda server, **_: nullcontext(server.name))
        monkeypatch.setattr(tables, "read_replica_lag", read)
        urls = [] if replica == "none" else ["mysql://replicator@r:3306"]
        config = minimal_config(
            source={"url": "mysql://u@h/shop", "tables": ["shop.*"]},
            bootstrap={"max_replica_lag": "5 s", "replica_urls": urls},
        )
        return list(check_replicas(config, 5.0))

    return check


@pytest.mark.parametrize(
    ("lag", "status", "found"),
    [
        (ReplicaLag(5), "ok", "5 s behind"),
        (ReplicaLag(6), "warn", "6 s behind"),
        (ReplicaLag(None), "warn", "its replication does not run"),
        (None, "fail", "is no replica"),
        (SourceUnavailable("cannot be reached", "start it"), "fail", "cannot be reached"),
    ],
)
def test_lag_of_replicas_is_shown_and_compared_with_the_limit(
    checked: Any, lag: Answer, status: str, found: str
) -> None:
    (result,) = checked(None, lag)
    assert (result.name, result.status, result.found) == ("replicas: r:3306", status, found)


def test_missing_privilege_is_named(checked: Any) -> None:
    (result,) = checked(None, PrivilegeError("the user lacks it"))
    assert (result.status, result.found) == ("fail", "the user lacks it")
    assert "GRANT REPLICATION CLIENT ON *.* TO the account of replicator" in result.next_step


def test_source_that_cannot_be_reached_is_the_result_of_another_check(checked: Any) -> None:
    assert checked(SourceUnavailable("cannot be reached")) == []


def test_limit_without_a_replica_has_no_effect(checked: Any) -> None:
    (result,) = checked(None)
    assert (result.name, result.status) == ("replicas: lag", "warn")
    (result,) = checked(ReplicaLag(0))
    assert (result.name, result.found) == ("replicas: h:3306", "0 s behind")
