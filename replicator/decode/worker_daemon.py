"""The process that forks Spark's Python workers: it imports once what all of them need.

It imports PySpark as it is installed, not from the archives that Spark names in PYTHONPATH. Before each task, Python
would read the directories of these again, which takes longer than the task of a table with few thousand events.
"""

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_ARCHIVES = ("pyspark", "py4j", "spark-core")


def _leave_archives() -> None:
    """Forget the archives of Spark, if their packages are installed."""
    archives = [
        entry
        for entry in sys.path
        if Path(entry).suffix in (".zip", ".jar") and Path(entry).name.startswith(_ARCHIVES)
    ]
    installed = [entry for entry in sys.path if entry not in archives]
    if all(PathFinder.find_spec(package, installed) for package in ("pyspark", "py4j")):
        sys.path[:] = installed
        for entry in archives:
            sys.path_importer_cache.pop(entry, None)


if __name__ == "__main__":
    _leave_archives()

    from pyspark.daemon import manager

    import replicator.decode.avro.parser
    import replicator.decode.decoder
    import replicator.decode.json.parser  # noqa: F401

    # A worker collects garbage after each task; what was imported is none.
    gc.collect()
    gc.freeze()
    manager()
