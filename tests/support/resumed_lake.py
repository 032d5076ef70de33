"""Continue the golden lake, and describe its contents."""

import json
from typing import Any

from replicator.config import Config
from replicator.lake.reading.quarantine import read_quarantine
from replicator.model.quarantine import LogCoordinate, QuarantineFilter, Resolution
from replicator.operations.quarantine import replay_events
from replicator.operations.status.read import read_status
from replicator.runner.build import open_context
from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.support.lake_contents import contents
from tests.support.lake_harness import LakeHarness
from tests.workload.golden_lake import BAD_GUARDED, SECTIONS

_OF_NOW = ("lag_seconds", "committed_ms", "commits", "bytes", "data_files", "delete_files")


def golden_config(lake: LakeHarness, *only: str) -> Config:
    """Return the golden lake's configuration; with `only`, for these tables."""
    if not only:
        return lake.config(**SECTIONS)
    chosen = [f"shop.{name}" for name in only]
    tables = [section for section in SECTIONS["table"] if section["name"] in chosen]
    return lake.config(**{**SECTIONS, "source": {"tables": chosen}, "table": tables})


def resume(lake: LakeHarness) -> dict[str, str]:
    """Apply the second phase and the quarantined events. Return the paused tables with their reasons."""
    config = golden_config(lake)
    context = open_context(config, ArchiveChangeLog(lake.folder / "archive"), lake.session(config))
    context.quarantine.resolve([LogCoordinate(*BAD_GUARDED)], Resolution.DROPPED)
    mirror = lake.catch_up(config)
    waiting = read_quarantine(config, QuarantineFilter(tables=("shop.numbers",)))
    replay_events(mirror.context, waiting)
    return dict(mirror.summary().paused)


def description(lake: LakeHarness) -> dict[str, Any]:
    """Return the lake's contents and the output of `status`, without values that depend on the time."""
    with lake.catalog() as catalog:
        found = contents(catalog, "shop") | {"status": _status(golden_config(lake))}
    # As in a JSON file, in which tuples are lists.
    return dict(json.loads(json.dumps(found)))


def _status(config: Config) -> dict[str, Any]:
    found = read_status(config).to_json()
    tables = {}
    for table in found.pop("tables"):
        notes = [{k: v for k, v in note.items() if k != "made_ms"} for note in table["schema_changes"]]
        kept = {k: v for k, v in table.items() if k not in _OF_NOW}
        tables[table["table"]] = kept | {"schema_changes": notes}
    return found | {"tables": tables}
