"""A lake that PyIceberg writes instead of Spark, with commit markers as a mirror leaves them."""

from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.position import SourcePosition

TOPIC = "p.shop.orders"


def marker(next_offset: int, sequence: int = 1, topic: str = TOPIC) -> CommitMarker:
    return CommitMarker(
        mirror="shop",
        sequence=sequence,
        batch=1,
        progress={topic: {0: PartitionProgress(next_offset)}},
        position=SourcePosition("mysql-bin.000002", 77),
        watermark_ms=1_000,
        committed_ms=2_000,
    )


def write(
    lake: SqlCatalog, name: tuple[str, str], rows: dict[str, list[Any]], stamp: CommitMarker | None
) -> None:
    data = pa.table(rows)
    table = lake.create_table(
        name, data.schema, properties={} if stamp is None else {MARKER_KEY: stamp.to_json()}
    )
    table.append(data)
