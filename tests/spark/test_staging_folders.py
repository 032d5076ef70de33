"""Where the files of a table lie that is read from the source."""

from pathlib import Path

from replicator.lake.reading.folder_reader import read_folders
from replicator.lake.reading.folders import local_path, sharing
from replicator.model.reread import new_request
from replicator.recovery.reader.staging import Staging
from tests.spark.test_quarantine import CREATED, event, row
from tests.spark.test_reread_quarantine import TABLE, reread, source
from tests.support.lake_harness import LakeHarness

INSERTED = event("c", 101, after=row(1, 10))


def folder_of(lake: LakeHarness, namespace: str) -> Path | None:
    """Return the folder of the table in a namespace; None if there is no such table."""
    found = lake.mirror().context.lake.load(namespace, TABLE.name)
    return None if found is None else local_path(str(found.java.location()))


def files_in(folder: Path) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and path.suffix in (".parquet", ".avro", ".json")
    ]


def test_files_of_a_new_table_lie_under_the_table_from_its_first_part_on(lake: LakeHarness) -> None:
    lake.write([CREATED])
    first = reread(lake, new_request(TABLE, "new table"), 7)
    namespace, staging = lake.config().lake.namespace, Staging.of(first.mirror.context)
    first.read([source(7)])
    folder = folder_of(lake, staging.namespace)
    assert folder is not None
    assert (folder.name, folder.parent.name) == (TABLE.name, namespace)
    # Interrupted, it leaves nothing to the next attempt; a table that is created by events has the same folder.
    staging.drop(TABLE)
    assert files_in(folder) == []
    again = reread(lake, new_request(TABLE, "new table"), 8)
    again.read([source(8)])
    again.complete()
    again.publish()
    assert folder_of(lake, namespace) == folder
    assert files_in(folder)
    assert folder_of(lake, staging.namespace) is None


def test_table_that_is_read_again_has_a_staging_folder_of_its_own(lake: LakeHarness) -> None:
    lake.write([CREATED, INSERTED])
    lake.catch_up()
    namespace = lake.config().lake.namespace
    folder = folder_of(lake, namespace)
    assert folder is not None
    before = files_in(folder)
    first = reread(lake, new_request(TABLE, "heal"), 7)
    first.read([source(7)])
    staging = Staging.of(first.mirror.context)
    assert folder_of(lake, staging.namespace) != folder
    staging.drop(TABLE)
    assert files_in(folder) == before


def test_no_folder_is_cleaned_in_which_a_new_table_is_being_read(lake: LakeHarness) -> None:
    """A table that was renamed keeps its folder, and a new one with its former name gets the same folder."""
    lake.write([CREATED, INSERTED])
    lake.catch_up()
    mirror = lake.mirror()
    namespace = lake.config().lake.namespace
    mirror.context.lake.rename(namespace, TABLE.name, "former")
    former = mirror.context.lake.load(namespace, "former")
    assert former is not None
    first = reread(lake, new_request(TABLE, "new table"), 7)
    first.read([source(7)])
    staging = Staging.of(first.mirror.context)
    assert sharing(
        str(former.java.uuid()), str(former.java.location()), read_folders(lake.config().lake)
    ) == (f"{staging.namespace}.{TABLE.name}")
