"""Small lakes whose tables are dropped, written by PyIceberg."""

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import Config
from replicator.lake.properties import PAUSED_KEY, RETRYING_KEY
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY
from replicator.model.verified import CHECKS_KEY, VERIFIED_KEY
from replicator.operations.drop import DropReport, drop, plan_drop

RECORDS = (PAUSED_KEY, RETRYING_KEY, VERIFIED_KEY, CHECKS_KEY)


def write(
    lake: SqlCatalog,
    namespace: str,
    name: str,
    *,
    source: str | None = "",
    mirror: str = "shop",
    location: str | None = None,
    **properties: str,
) -> None:
    """Write a table with two commits; `source` is shop.NAME by default, and None means that it is not recorded."""
    progress = {f"p.shop.{name}": {0: PartitionProgress(1)}}
    marker = CommitMarker(mirror, 1, 1, progress, None, None, 1)
    recorded = {} if source is None else {SOURCE_KEY: source or f"shop.{name}"}
    rows = pa.table({"id": [1, 2]})
    table = lake.create_table(
        (namespace, name),
        rows.schema,
        location=location,
        properties={MARKER_KEY: marker.to_json(), **recorded, **properties},
    )
    table.append(rows)
    table.append(rows)


def names(lake: SqlCatalog) -> set[str]:
    return {".".join(name) for space in ("shop", "shop_changes") for name in lake.list_tables(space)}


def ops(lake: SqlCatalog) -> dict[str, str]:
    return {
        k: v for k, v in lake.load_namespace_properties("shop_ops").items() if k.startswith("replicator.")
    }


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def folder_of(config: Config, namespace: str, name: str) -> Path:
    return Path(config.lake.warehouse or "") / namespace / name


def run(config: Config, source: str = "shop.orders", *, purge: bool = True) -> DropReport:
    return drop(config, plan_drop(config, source, purge=purge))
