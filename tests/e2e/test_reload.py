"""Tables are added to a running mirror and taken out of it, on the real stack."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from replicator.config import load
from replicator.operations.connector import register
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads, command

BY_MIRROR = f"""
[bootstrap]
by = "mirror"
chunk_rows = 20
max_rows_per_second = 50
[heal]
mode = "auto"
{FAST_MIRROR}
"""


def select(mirrored: MirroredDatabase, text: str, *tables: str) -> Path:
    """Write the configuration with some tables of the database only."""
    name = mirrored.database.name
    every, some = f'"{name}.*"', ", ".join(f'"{name}.{table}"' for table in tables)
    assert every in text
    return mirrored.configured("mirror.toml", text.replace(every, some))


def requested(mirror: MirrorProcess) -> Counter[str]:
    """Return how often each table was requested to be read."""
    lines = [line for line in mirror.lines() if line.get("event") == "re-read requested"]
    return Counter(line["table"].partition(".")[2] for line in lines)


@pytest.mark.long
def test_tables_are_added_and_removed_while_they_change(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=3, extra=BY_MIRROR)
    text = mirrored.config.read_text()
    register(load(select(mirrored, text, "t00", "t01")))
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        with mirrored.writers(1, 2):
            await_rereads(mirror, 2)

            # The connector does not read t02 yet: the mirror would miss its changes until then.
            select(mirrored, text, "t00", "t02")
            refused = subprocess.run(
                [COMMAND, "reload", "-c", str(mirrored.config)], capture_output=True, text=True, check=False
            )
            assert (refused.returncode, "table.include.list" in refused.stderr) == (1, True), refused.stderr
            register(load(mirrored.config))
            assert command(mirrored, "reload") == {"version": 1, "changed": ["source.tables"]}
            until(lambda: requested(mirror)["t02"], seconds=START_S, doing=f"t02 is found\n{mirror.tail()}")
            until(
                lambda: mirrored.comparison.differences({"t01"}), seconds=START_S, doing="t01 stays as it is"
            )

            # t02 continues to be read. The connector did not read t01 meanwhile, so the mirror reads that again.
            register(load(select(mirrored, text, "t00", "t01", "t02")))
            command(mirrored, "reload")
            await_rereads(mirror, 4)
        mirrored.comparison.await_equal(mirror, START_S)
        assert requested(mirror) == {"t00": 1, "t01": 2, "t02": 1}
        assert [line["reason"] for line in await_rereads(mirror, 4)].count("new table") == 3
        assert mirror.stop() == 0, mirror.tail()
    assert mirrored.comparison.assert_changelogs() > 0
