"""Zero dates in keys, which events have as 1970-01-01."""

import pytest

from replicator.operations.status.read import read_status
from tests.support.mirror import HEALING_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.rereads import command


@pytest.mark.fault(
    "A key has a zero date, which the lake cannot tell from 1970-01-01",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table pauses until its rows have no zero date any more",
)
@pytest.mark.long
def test_a_table_with_a_zero_date_in_its_key_pauses_and_is_never_wrong(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(
        tables=0,
        seed_rows=False,
        prepare=(
            "SET SESSION sql_mode = ''",
            "CREATE TABLE days (d DATE PRIMARY KEY, v INT)",
            "INSERT INTO days VALUES ('1970-01-01', 1), ('2026-01-01', 2)",
            "CREATE TABLE moments (id INT, at DATETIME, v INT, PRIMARY KEY (at, id))",
            "INSERT INTO moments VALUES (1, '0000-00-00', 1), (1, '1970-01-01', 2)",
        ),
        extra=HEALING_MIRROR,
    )
    database, compare = mirrored.database, mirrored.comparison

    def paused() -> set[str]:
        return {name.rpartition(".")[2] for name in map(str, read_status(compare.config).paused)}

    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        until(lambda: paused() == {"moments"}, seconds=START_S, doing="moments is refused")
        compare.await_equal(mirror, START_S, besides=["moments"])
        with database.connect(sql_mode="") as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO days VALUES ('0000-00-00', 3)")
            until(lambda: "days" in paused(), seconds=START_S, doing="days pauses")
            cursor.execute("DELETE FROM days WHERE v = 3")
            cursor.execute("DELETE FROM moments WHERE v = 1")
        for table in ("days", "moments"):
            command(mirrored, "heal", f"{database.name}.{table}")
        until(lambda: not paused(), seconds=START_S, doing="both continue")
        compare.await_equal(mirror, START_S)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
