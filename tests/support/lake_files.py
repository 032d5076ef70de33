"""The files in the folders of a lake."""

from pathlib import Path

from tests.support.lake_harness import LakeHarness


def unreferenced(lake: LakeHarness) -> set[str]:
    """Return the names of the data files in the tables' own folders that no snapshot ever had."""
    with lake.catalog() as catalog:
        known = {
            Path(path.removeprefix("file:")).name
            for namespace in catalog.list_namespaces()
            for identifier in catalog.list_tables(namespace)
            for path in catalog.load_table(identifier).inspect.all_files()["file_path"].to_pylist()
        }
    return {file.name for file in lake.folder.rglob("data/*.parquet")} - known
