"""Write the golden lake of the version that is checked out, with its archive and its expected contents.

    python -m tests.workload.write_golden_lake NAME

Writes tests/golden/lakes/NAME.tar.xz (lake and archive) and tests/golden/lakes/NAME.json: the contents of the lake
after the first phase, and after this version applied the second one. A golden lake is written once, by a release. It
shows that later versions continue the lakes of that one, so it is never written again.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator import failpoints
from replicator.model.quarantine import LogCoordinate, Resolution
from replicator.runner.build import open_context
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.reader import ArchiveReader
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut
from tests.support.golden import FOLDER
from tests.support.lake_harness import LakeHarness, spark_session
from tests.support.packed_lake import pack, unpack
from tests.support.resumed_lake import description, golden_config, resume
from tests.workload import golden_lake
from tests.workload.golden_lake import GoldenHistory

_CUTS = {"items": "between-commits", "stock": "after-data-files", "rebuilt": "after-data-files"}
"""Table → failpoint at which the process is killed while it applies the table's newest events."""


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="version, such as 0.1.0")
    file = FOLDER / "lakes" / f"{parser.parse_args().name}.tar.xz"
    os.environ[golden_lake.HASH_KEY_VARIABLE] = golden_lake.HASH_KEY
    with tempfile.TemporaryDirectory(prefix="golden-lake-") as scratch, spark_session(Path(scratch)) as spark:
        written, unpacked = (LakeHarness(spark, Path(scratch) / part) for part in ("written", "unpacked"))
        written.folder.mkdir()
        _write(written)
        pack(written.folder, file)
        unpack(file, unpacked.folder)
        before = description(unpacked)
        paused = resume(unpacked)
        document = {"before": before, "paused": sorted(paused), "after": description(unpacked)}
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True)
    file.with_name(file.name.removesuffix(".tar.xz") + ".json").write_text(text + "\n", encoding="utf-8")
    print(f"{file}: {file.stat().st_size:,} bytes; paused: {paused}")


def _write(lake: LakeHarness) -> None:
    """Write both phases to the archive, and apply the first one."""
    history = golden_lake.created()
    first = _batch(lake, history)
    golden_lake.changed(history)
    first += _batch(lake, history)
    config = golden_config(lake)
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    context.quarantine.resolve([LogCoordinate(*golden_lake.DROPPED)], Resolution.DROPPED)
    for table, point in _CUTS.items():
        golden_lake.interrupted(history, table)
        first += _batch(lake, history, table, cut=point)
    golden_lake.paused(history)
    first += _batch(lake, history, "strict", "guarded")
    golden_lake.later(history, first)
    lake.write(history.records)
    print(f"{ArchiveReader(lake.folder / 'archive').manifest.events} events")


def _batch(lake: LakeHarness, history: GoldenHistory, *only: str, cut: str | None = None) -> list[Record]:
    """Apply the events of `history` to the tables `only`, or to all, in a new process, which ends pauses."""
    lake.write(history.records)
    try:
        with _killed_at(cut):
            mirror = lake.catch_up(golden_config(lake, *only))
    except PowerCut:
        print(f"{only}: killed at {cut}")
    else:
        assert cut is None, f"{cut} was not reached"
        print(f"{only}: paused: {mirror.summary().paused}")
    return list(history.records)


@contextmanager
def _killed_at(point: str | None) -> Iterator[None]:
    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    with failpoints.on_reach(reach):
        yield


if __name__ == "__main__":
    main()
