"""Repairs of the connector that a running mirror makes by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator import failpoints
from replicator.batch import MirrorContext
from replicator.config import load
from replicator.model.table import TableId
from replicator.runner.connector_repair import REPAIR_POINTS, ConnectorRepair
from replicator.sources.connector_settings import connect_client
from replicator.sources.kafka_connect import KafkaConnect
from tests.support import topics
from tests.support.mirror import until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

PREPARE = [
    "CREATE TABLE kept (id INT PRIMARY KEY, x INT)",
    "CREATE TABLE bad (id INT PRIMARY KEY, x INT)",
    "INSERT INTO kept VALUES (1, 1)",
    "INSERT INTO bad VALUES (1, 1)",
]


class Properties:
    """The properties of the `_ops` namespace, without a lake."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def namespace_properties(self, _namespace: str) -> dict[str, str]:
        return dict(self._values)

    def set_namespace_property(self, _namespace: str, key: str, value: str) -> None:
        self._values[key] = value


class Killed(Exception):  # noqa: N818 -- not a failure
    """The process ended at a failpoint."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    def end(reached: str) -> None:
        if reached == point:
            raise Killed

    with failpoints.on_reach(end), pytest.raises(Killed):
        yield


def events(mirrored: MirroredDatabase, table: str) -> int:
    """Return how many events the topic of a table has."""
    ends = topics.ends(mirrored.database.endpoints.bootstrap_servers, mirrored.database.prefix)
    return ends.get(mirrored.topic(table), 0)


def complete(repair: ConnectorRepair) -> None:
    """Let a repair come to its end."""

    def is_done() -> bool:
        repair.step()
        return not repair.is_busy

    until(is_done, seconds=60, doing="the repair is done")


def a_client(mirrored: MirroredDatabase) -> KafkaConnect:
    client = connect_client(load(mirrored.config))
    assert client is not None
    return client


@pytest.mark.fault(
    "The mirror is killed at each failpoint while it lets the connector read all definitions again",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the next start completes that; the connector has its former settings and no event is lost",
)
def test_interrupted_repair_is_completed_by_the_next_process(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE)
    client, name, database = a_client(mirrored), mirrored.database.prefix, mirrored.database
    until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    before = client.options(name)
    context = cast("Any", SimpleNamespace(config=load(mirrored.config), lake=Properties()))
    for i, point in enumerate(REPAIR_POINTS):
        repair = ConnectorRepair(cast("MirrorContext", context))
        repair.load()
        repair.rebuild_history("a trial")
        assert repair.blocks(TableId(database.name, "kept"))
        with killed_at(point):
            complete(repair)
        database.execute(
            f"ALTER TABLE kept ADD COLUMN c{i} INT DEFAULT 7", f"INSERT INTO kept (id) VALUES ({i + 2})"
        )
        following = ConnectorRepair(cast("MirrorContext", context))
        following.load()
        assert following.is_busy
        complete(following)
        assert following.rebuilt == 1
        assert client.options(name) == before
        until(lambda: events(mirrored, "kept") == i + 2, seconds=60, doing="the event comes")  # noqa: B023


def test_table_that_is_set_aside_has_no_events_until_it_is_taken_in_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE)
    client, name, database = a_client(mirrored), mirrored.database.prefix, mirrored.database
    until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    before, bad = client.options(name), TableId(database.name, "bad")
    context = cast("Any", SimpleNamespace(config=load(mirrored.config), lake=Properties()))
    repair = ConnectorRepair(cast("MirrorContext", context))
    repair.load()
    repair.without_table(bad)
    assert repair.blocks(bad)
    complete(repair)
    database.execute("INSERT INTO bad VALUES (2, 2)", "INSERT INTO kept VALUES (2, 2)")
    until(lambda: events(mirrored, "kept") == 2, seconds=60, doing="the other table goes on")
    # Another process learns it from the settings of the connector.
    following = ConnectorRepair(cast("MirrorContext", context))
    following.load()
    assert following.blocks(TableId(database.name, "kept"))
    following.step()
    assert following.blocks(bad)
    assert not following.blocks(TableId(database.name, "kept"))
    following.with_table(bad)
    complete(following)
    assert not following.blocks(bad)
    assert client.options(name) == before
    database.execute("INSERT INTO bad VALUES (3, 3)")
    until(lambda: events(mirrored, "bad") == 2, seconds=60, doing="the table is taken in again")
