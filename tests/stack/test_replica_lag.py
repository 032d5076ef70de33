"""The lag of a real replica, and what reads and checks it."""

import threading

import pytest

from replicator.config import Config
from replicator.errors import PrivilegeError
from replicator.model.table import TableId
from replicator.operations.check.source_facts import read_source_facts
from replicator.operations.check.tables import check_replicas
from replicator.sources.mysql.connection import MySqlServer, connect_to
from replicator.sources.mysql.replication import ReplicaLag, read_replica_lag, watched_servers
from replicator.sources.mysql.throttle import StopSignal, Throttle
from tests.support.config import minimal_config
from tests.support.mirror import until
from tests.support.replica import Replica
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

TABLE = TableId("shop", "orders")


def configured(source_database: SourceDatabase, replica: Replica, user: str = "") -> Config:
    there = source_database.endpoints
    url = replica.url if not user else replica.url.replace(f"{replica.server.mysql_user}@", f"{user}@")
    return minimal_config(
        source={
            "url": f"mysql://{there.mysql_user}@{there.mysql_host}:{there.mysql_port}",
            "password": {"env": "REPLICATOR_TEST_PASSWORD"},
            "tables": ["shop.*"],
        },
        bootstrap={
            "max_replica_lag": "1 second",
            "replica_urls": [url],
            "replica_password": {"env": "REPLICATOR_TEST_PASSWORD"},
        },
    )


def lag_of(server: MySqlServer) -> ReplicaLag | None:
    with connect_to(server) as connection:
        return read_replica_lag(connection)


@pytest.mark.fault(
    "The replica from which tables are read is behind",
    area="Servers",
    on="MySQL with a replica",
    outcome="reading waits until it has caught up",
)
def test_reading_waits_while_a_replica_of_the_source_is_behind(
    source_database: SourceDatabase, replica: Replica
) -> None:
    config = configured(source_database, replica)
    source, own = (watched.server for watched in watched_servers(config))
    replica.catch_up()
    assert lag_of(source) is None
    until(lambda: lag_of(own) == ReplicaLag(0), seconds=60, doing="the replica has no lag")
    as_source = minimal_config(
        source={"url": replica.url, "password": {"env": "REPLICATOR_TEST_PASSWORD"}, "tables": ["shop.*"]},
        bootstrap={"max_replica_lag": "1 second"},
    )
    assert read_source_facts(as_source).is_replica
    assert [r.status for r in check_replicas(as_source, as_source.bootstrap.max_replica_lag or 0.0)] == ["ok"]
    replica.execute("STOP REPLICA SQL_THREAD", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 3600")
    assert lag_of(own) == ReplicaLag(None)
    assert [r.status for r in check_replicas(config, config.bootstrap.max_replica_lag or 0.0)] == ["warn"]
    assert not read_source_facts(config).is_replica
    replica.execute("START REPLICA SQL_THREAD")
    source_database.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    until(
        lambda: ((lag_of(own) or ReplicaLag(0)).seconds or 0) > 1, seconds=60, doing="the replica is behind"
    )

    waits: list[str | None] = []
    stopping = StopSignal(threading.Event(), threading.Event())
    throttle = Throttle.of(config, TABLE, waits.append, rows_per_second=None)
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(throttle.wait(0, stopping)))
    thread.start()
    until(lambda: waits, seconds=60, doing="reading waits")
    assert waits == [f"{own.name} is more than 1 s behind"]
    replica.restore()
    thread.join(60)
    assert ended == [False]
    assert waits[-1] is None


def test_a_user_without_the_privilege_is_named(source_database: SourceDatabase, replica: Replica) -> None:
    password = replica.server.mysql_password
    replica.execute(
        "SET sql_log_bin = 0",
        "DROP USER IF EXISTS poor",
        f"CREATE USER poor IDENTIFIED BY '{password}'",
    )
    config = configured(source_database, replica, "poor")
    (result,) = check_replicas(config, config.bootstrap.max_replica_lag or 0.0)
    assert result.status == "fail"
    assert "REPLICATION CLIENT" in result.found + result.next_step
    throttle = Throttle.of(config, TABLE, print, rows_per_second=None)
    with pytest.raises(PrivilegeError):
        throttle.wait(0, StopSignal(threading.Event(), threading.Event()))
