"""Tables are added to a running mirror and taken out of it, on the real stack."""

import subprocess
from pathlib import Path

from replicator.config import load
from replicator.operations.connector import register
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads, command

BY_MIRROR = f"""
[bootstrap]
by = "mirror"
chunk_rows = 20
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


def test_tables_are_added_and_removed_while_they_change(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=3, extra=BY_MIRROR)
    text = mirrored.config.read_text()
    register(load(select(mirrored, text, "t00", "t01")))
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        with mirrored.writers(1, 2):
            await_rereads(mirror, 2)
            process = mirror.process

            # The connector does not read t02 yet: the mirror would miss its changes until then.
            select(mirrored, text, "t00", "t02")
            refused = subprocess.run(
                [COMMAND, "reload", "-c", str(mirrored.config)], capture_output=True, text=True, check=False
            )
            assert (refused.returncode, "table.include.list" in refused.stderr) == (1, True), refused.stderr
            register(load(mirrored.config))
            assert command(mirrored, "reload") == {"version": 1, "changed": ["source.tables"]}
            assert await_rereads(mirror, 3)[-1]["table"] == f"{mirrored.database.name}.t02"
            until(
                lambda: mirrored.comparison.differences({"t01"}),
                seconds=START_S,
                doing="t01 is left as it is",
            )

            # The connector did not read t01 meanwhile, so it must be read from the source.
            register(load(select(mirrored, text, "t00", "t01", "t02")))
            command(mirrored, "reload")
            returned = await_rereads(mirror, 4)[-1]
            assert returned["table"] == f"{mirrored.database.name}.t01"
            assert "left out" in returned["reason"]
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.process is process
        assert mirror.stop() == 0, mirror.tail()
    assert mirrored.comparison.assert_changelogs() > 0
