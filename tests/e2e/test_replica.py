"""Read tables from a real replica, which lags behind its source."""

import pytest

from tests.support.mirror import FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.replica import Replica
from tests.support.rereads import await_rereads, shown_rereads

LIMITED = f"""
[bootstrap]
by = "mirror"
chunk_rows = 20
max_replica_lag = "1 second"
{FAST_MIRROR}
"""


def await_wait(mirror: MirrorProcess, tables: int) -> None:
    """Wait until reading waits, for each of the mirror's tables."""

    def waiting() -> bool:
        assert mirror.is_alive(), mirror.tail()
        lines = [line for line in mirror.lines() if line.get("event") == "reading waits for replicas"]
        return len({line["table"] for line in lines}) == tables

    until(waiting, seconds=START_S, doing="reading waits")


@pytest.mark.fault(
    "The replica from which tables are read is behind",
    area="Servers",
    on="MySQL with a replica, Debezium, Kafka",
    outcome="reading waits until it has caught up",
)
@pytest.mark.long
def test_reading_from_a_replica_waits_while_it_is_behind(
    mirror_database: MirroredDatabaseBuilder, replica: Replica
) -> None:
    mirrored = mirror_database(tables=2, extra=LIMITED, replica=replica)
    replica.execute("STOP REPLICA SQL_THREAD")
    mirrored.database.execute("UPDATE t00 SET label = 'later' LIMIT 5")
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log")
    mirror.start()
    await_wait(mirror, 2)
    shown = until(
        lambda: [r for r in shown_rereads(mirrored) if r["problem"]], seconds=START_S, doing="status says why"
    )
    reason = f"the replication of {replica.server.mysql_host}:{replica.server.mysql_port} does not run"
    assert (shown[0]["phase"], shown[0]["rows"], shown[0]["problem"]) == ("reading", 0, reason)
    assert mirror.stop(60) == 0, mirror.tail()
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_wait(mirror, 2)
        with mirrored.writers(1):
            replica.execute("START REPLICA SQL_THREAD")
            done = await_rereads(mirror, 2)
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    assert {line["reason"] for line in done} == {"new table"}
    assert [r["problem"] for r in shown_rereads(mirrored)] == [None, None]
