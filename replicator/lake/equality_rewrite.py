"""Apply equality deletes by rewriting data files, and remove the delete files that no reader needs."""

from collections.abc import Mapping
from typing import Any

from replicator.lake.catalog import Lake, LakeTable, lake_errors


def apply_equality_deletes(lake: Lake, table: LakeTable) -> None:
    """Rewrite all data files to which deletes apply, then remove all equality deletes.

    `table` is refreshed.
    """
    snapshot = table.java.currentSnapshot()
    if snapshot is None or int(snapshot.summary().get("total-equality-deletes") or 0) == 0:
        return
    with lake_errors(f"equality deletes of {table.namespace}.{table.name} cannot be applied"):
        # Iceberg's action registers its catalog in the active session of the thread, and reads with the given one.
        jvm: Any = lake.spark._jvm  # noqa: SLF001 no public way
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(lake.spark._jsparkSession)  # noqa: SLF001
        actions = lake.classes.spark_actions.get(lake.spark._jsparkSession)  # noqa: SLF001 no public way
        actions.rewriteDataFiles(table.java).binPack().option("delete-file-threshold", "1").execute()
        table.java.refresh()
        drop_unused_equality_deletes(lake, table, {})
        table.java.refresh()


def drop_unused_equality_deletes(lake: Lake, table: LakeTable, summary: Mapping[str, str]) -> None:
    """Remove the equality-delete files that apply to no data file, in a commit of its own with `summary`.

    Later data files have higher sequence numbers, so none of them will ever need these files. Iceberg itself keeps them
    as long as the table has any older data file.
    """
    used, rewrite = _used_deletes(table), table.java.newRewrite()
    unused = [file for path, file in _equality_deletes(lake, table).items() if path not in used]
    if not unused:
        return
    for file in unused:
        rewrite.deleteFile(file)
    for name, value in summary.items():
        rewrite.set(name, value)
    rewrite.commit()


def _used_deletes(table: LakeTable) -> set[str]:
    """Return the paths of the delete files that readers of the current snapshot open."""
    tasks = table.java.newScan().planFiles()
    try:
        iterator, used = tasks.iterator(), set[str]()
        while iterator.hasNext():
            used.update(str(file.location()) for file in iterator.next().deletes())
    finally:
        tasks.close()
    return used


def _equality_deletes(lake: Lake, table: LakeTable) -> dict[str, Any]:
    """Return path → DeleteFile of the equality-delete files of the current snapshot."""
    java, files = table.java, {}
    snapshot = java.currentSnapshot()
    for manifest in [] if snapshot is None else snapshot.deleteManifests(java.io()):
        reader = lake.classes.manifest_files.readDeleteManifest(manifest, java.io(), java.specs())
        try:
            iterator = reader.iterator()
            while iterator.hasNext():
                file = iterator.next()
                if str(file.content()) == "EQUALITY_DELETES":
                    files[str(file.location())] = file.copy()
        finally:
            reader.close()
    return files
