"""Rename tables in every way, also such that have had no event yet and no topic."""

import pytest

from replicator.operations.status.read import read_status
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command

TABLES = ("x1", "x2", "x3", "x4", "s1", "s2", "e1", "e2", "g", "g2", "r1", "d1")


def states(mirrored: MirroredDatabase) -> dict[str, str]:
    """Return the state of each table, by its name in the lake."""
    return {t.table.rsplit(".", 1)[-1]: t.state for t in read_status(mirrored.comparison.config).tables}


@pytest.mark.fault(
    "Tables are renamed, exchange their names, or take over a name, with and without events before",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="each name is mirrored: a table keeps its rows if no other table had the name, else it is read again",
    lost="the single changes in the changelog of a name that several tables had: it has the differences",
)
@pytest.mark.long
def test_tables_that_were_renamed_are_mirrored_by_their_new_names(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = []
    for number, name in enumerate(TABLES):
        prepare += [
            f"CREATE TABLE {name} (id INT PRIMARY KEY, label VARCHAR(20))",
            f"INSERT INTO {name} VALUES (1, '{name}'), ({number + 10}, 'b')",
        ]
    mirrored = mirror_database(tables=1, extra=HEALING_MIRROR, prepare=prepare)
    output = mirrored.folder / "out.log"
    execute = mirrored.database.execute
    with running(mirrored.config, output) as mirror:
        until(
            lambda: "re-read requested" in (mirror.tail() if output.exists() else ""),
            seconds=START_S,
            doing="tables are read",
        )
        # Its position is chosen once the tables are read.
        command(mirrored, "tag", "noon", "--wait", str(START_S))
        mirrored.comparison.await_equal(mirror, START_S)
        until(lambda: set(states(mirrored).values()) == {"current"}, seconds=120, doing="all are current")
        execute(*(f"INSERT INTO {name} VALUES (2, 'event')" for name in ("e1", "e2", "g", "g2", "r1")))
        mirrored.comparison.await_equal(mirror, START_S)
        execute(
            "RENAME TABLE x1 TO y1",
            "ALTER TABLE x2 RENAME y2",
            "RENAME TABLE s1 TO s3, s2 TO s1",
            "RENAME TABLE x3 TO xt, x4 TO x3, xt TO x4",
            "RENAME TABLE e1 TO et, e2 TO e1, et TO e2",
            "RENAME TABLE g TO g_old, g2 TO g",
            "RENAME TABLE r1 TO r2",
            "CREATE TABLE r1 (id INT PRIMARY KEY, label VARCHAR(20))",
            "INSERT INTO y1 VALUES (3, 'after')",
            "INSERT INTO r1 VALUES (3, 'after')",
        )
        mirrored.comparison.await_equal(mirror, START_S)
        present = {str(row[0]) for row in mirrored.database.rows("SHOW TABLES")}

        def settled() -> bool:
            found = states(mirrored)
            return set(found) >= present and all(found[name] == "current" for name in present)

        until(settled, seconds=120, doing=f"{present} are current: {states(mirrored)}")
        assert mirror.stop() == 0, mirror.tail()
    # No event follows the first statement, and the source has no table that could be read again after the others.
    execute(
        "RENAME TABLE y2 TO z2",
        "CREATE TABLE d2 LIKE d1",
        "DROP TABLE d1",
        "RENAME TABLE d2 TO d1",
        "DROP TABLE d1",
    )
    mirror = MirrorProcess(mirrored.config, output, ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}
    found = states(mirrored)
    assert (found["z2"], found["d1"], "y2" in found) == ("current", "gone", False)
