"""What the first reading of many tables does to the source and to the lake."""

import pytest

from replicator.lake.reading.reader import open_catalog
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

TABLES = 48


@pytest.mark.long
def test_many_new_tables_share_one_rotation_and_have_their_files_in_their_own_folders(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [
        statement
        for n in range(TABLES)
        for statement in (
            f"CREATE TABLE n{n:02d} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO n{n:02d} VALUES (1, 1)",
        )
    ]
    mirrored = mirror_database(tables=3, extra=HEALING_MIRROR, prepare=prepare)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    before = binlog_number(mirrored)
    with mirrored.writers(1, 2):
        mirror.start()
        assert mirror.wait(START_S) == 0, mirror.tail()
    assert sum(line["event"] == "re-read done" for line in mirror.lines()) == TABLES + 3
    # One of them may be of a table that was requested after the first one began to be read.
    assert binlog_number(mirrored) - before <= 2
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        for name in (f"n{n:02d}" for n in range(TABLES)):
            table = catalog.load_table((lake.namespace, name))
            folder = f"{lake.warehouse}/{lake.namespace}/{name}/"
            assert all(str(task.file.file_path).startswith(folder) for task in table.scan().plan_files())
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}


def binlog_number(mirrored: MirroredDatabase) -> int:
    """Return the number of the source's newest binlog file."""
    return max(int(str(name).rpartition(".")[2]) for name, *_ in mirrored.database.rows("SHOW BINARY LOGS"))
