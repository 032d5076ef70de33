"""Observe a mirror on the real stack, and request re-reads."""

import json
import subprocess
from typing import Any

from replicator.lake.reading.reader import open_catalog
from tests.support.mirror import COMMAND, START_S, MirrorProcess, until
from tests.support.mirrored_database import MirroredDatabase


def await_rereads(mirror: MirrorProcess, count: int) -> list[dict[str, Any]]:
    """Wait for `count` completed re-reads since the last start of the mirror, and return their log lines."""

    def done() -> list[dict[str, Any]]:
        assert mirror.is_alive(), mirror.tail()
        found = [line for line in mirror.lines() if line.get("event") == "re-read done"]
        return found if len(found) >= count else []

    return list(until(done, seconds=START_S, doing=f"{count} re-reads"))


def command(mirrored: MirroredDatabase, *arguments: str) -> dict[str, Any]:
    """Run a command that reads tables, and return its report."""
    done = subprocess.run(
        [COMMAND, *arguments, "-c", str(mirrored.config), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def changes(mirrored: MirroredDatabase, table: str, op: str) -> list[str]:
    """Return the kinds of the changelog's rows with an op, sorted."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        rows = catalog.load_table((lake.changes_namespace, table)).scan(row_filter=f"_change.op = '{op}'")
        return sorted(row["_change"]["kind"] for row in rows.to_arrow().to_pylist())


def shown_status(mirrored: MirroredDatabase) -> dict[str, Any]:
    """Return what `status` shows."""
    done = subprocess.run(
        [COMMAND, "status", "-c", str(mirrored.config), "--json"], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def shown_rereads(mirrored: MirroredDatabase) -> list[dict[str, Any]]:
    """Return the re-reads that `status` shows."""
    return list(shown_status(mirrored)["rereads"])
