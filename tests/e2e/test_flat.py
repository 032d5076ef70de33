"""A mirror of flattened events, which a real connector writes with ExtractNewRecordState."""

from pathlib import Path

import pytest

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from tests.support.mirror import FAST_MIRROR, START_S, Comparison, running
from tests.support.source import SourceDatabase


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.long
def test_mirror_equals_the_source_with_flattened_events(
    source_database: SourceDatabase, tmp_path: Path, encoding: str
) -> None:
    source_database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(9,2), seen DATETIME(6))",
        "INSERT INTO item VALUES (1, 'one', 1.25, '2024-01-01 01:02:03.5'), (2, NULL, NULL, NULL), (3, '', -3, NULL)",
    )
    log = "flattened = true\n"
    if encoding == "avro":
        log += f'format = "avro"\nregistry_url = "{source_database.endpoints.registry_url}"\n'
    file = tmp_path / "mirror.toml"
    (tmp_path / "lake").mkdir()
    file.write_text(source_database.config_text(tmp_path, FAST_MIRROR).replace("[lake]", f"{log}[lake]"))
    config = load(file)
    register(config)
    compare = Comparison.of(source_database, file)
    with running(file, tmp_path / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        source_database.execute(
            "UPDATE item SET price = 9.75 WHERE id = 1",
            "DELETE FROM item WHERE id = 2",
            "UPDATE item SET id = 30 WHERE id = 3",
            "ALTER TABLE item ADD COLUMN note VARCHAR(9)",
            "INSERT INTO item VALUES (4, 'four', 4, NULL, 'new')",
        )
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
    with open_catalog(config.lake) as catalog:
        changes = catalog.load_table((config.lake.changes_namespace, "item")).scan().to_arrow().to_pylist()
    kinds = sorted((c["_change"]["kind"], c["id"]) for c in changes if c["_change"]["op"] != "r")
    assert kinds == [("DELETE", 2), ("DELETE", 3), ("INSERT", 4), ("INSERT", 30), ("UPDATE_AFTER", 1)]
