"""Results of pipelines, and a history, on the real MySQL, Debezium, Kafka and Kafka Connect."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from replicator.config import load
from replicator.errors import LakeUnavailable
from replicator.lake.reading.reader import open_catalog
from replicator.pipelines.status import list_pipelines
from tests.support.mirror import FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command

QUERY = "-- key: label\nSELECT label, count(*) AS n, sum(id) AS total FROM {namespace}.still GROUP BY label\n"


def result(mirrored: MirroredDatabase) -> list[tuple[Any, ...]] | None:
    lake = load(mirrored.config).lake
    try:
        with open_catalog(lake) as catalog:
            if not catalog.table_exists((lake.pipelines_namespace, "labels")):
                return None
            rows = catalog.load_table((lake.pipelines_namespace, "labels")).scan().to_arrow().to_pylist()
    except LakeUnavailable:
        # The first batch creates the catalog.
        return None
    return sorted((row["label"], row["n"], row["total"]) for row in rows)


def await_result(mirrored: MirroredDatabase, mirror: MirrorProcess, doing: str) -> None:
    """Wait until the result is what MySQL computes; the source does not change meanwhile."""
    query = "SELECT label, COUNT(*), CAST(SUM(id) AS SIGNED) FROM still GROUP BY label ORDER BY label"

    def is_equal() -> bool:
        assert mirror.is_alive(), mirror.tail()
        return result(mirrored) == list(mirrored.database.rows(query))

    until(is_equal, seconds=START_S, doing=doing)


def boundary(mirrored: MirroredDatabase) -> str | None:
    found = list_pipelines(load(mirrored.config))
    assert [status.problem for status in found] == [None, None], found
    return next(status.boundary for status in found if status.name == "labels")


def await_versions(mirrored: MirroredDatabase, mirror: MirrorProcess) -> None:
    """Wait until the history has each version: by the op that began it, and the one that ended it."""
    lake = load(mirrored.config).lake
    wanted = {("r", None): 34, ("r", "u"): 7, ("u", None): 7, ("r", "h"): 9}

    def has_versions() -> bool:
        assert mirror.is_alive(), mirror.tail()
        with open_catalog(lake) as catalog:
            rows = catalog.load_table((lake.history_namespace, "still")).scan().to_arrow().to_pylist()
        found = Counter((row["_version"]["from_op"], row["_version"]["to_op"]) for row in rows)
        current = {row["id"] for row in rows if row["is_current"]}
        return found == wanted and current == set(range(41))

    until(has_versions, seconds=START_S, doing="the versions of the rows")


def test_result_has_all_changes_of_a_source_that_changes_no_more(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    rows = ", ".join(f"({number}, 'label {number % 5}')" for number in range(50))
    prepare = [
        "CREATE TABLE still (id INT PRIMARY KEY, label VARCHAR(30))",
        f"INSERT INTO still VALUES {rows}",
    ]
    history = '[[table]]\nname = "{name}.still"\nhistory = "scd2"\n'
    extra = f'{FAST_MIRROR}\n[pipelines]\nevery = "1 second"\n{history}'
    mirrored = mirror_database(tables=0, seed_rows=False, extra=extra, prepare=prepare)
    folder = mirrored.config.parent / "pipelines"
    folder.mkdir()
    (folder / "labels.sql").write_text(QUERY.format(namespace=load(mirrored.config).lake.namespace))
    awaits: Callable[[str], None]
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        awaits = partial(await_result, mirrored, mirror)
        awaits("the result of the rows that the connector read")
        mirrored.database.execute("UPDATE still SET label = 'other' WHERE id < 7")
        awaits("the last change of the source")
        before = boundary(mirrored)
        # A new file of the binlog, in which there is no transaction.
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("DELETE FROM still WHERE id > 40")
            cursor.execute("FLUSH BINARY LOGS")
        report = command(mirrored, "heal", f"{mirrored.database.name}.still")
        assert [(r["phase"], r["changed"]) for r in report["rereads"]] == [("done", 9)]
        awaits("the rows that were read again")
        assert boundary(mirrored) != before
        await_versions(mirrored, mirror)
        assert mirror.stop() == 0, mirror.tail()
