"""Reads the changes of a table that its changelog contains."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.jvm.position_columns import position_key
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.model.changelog import RESTATED_KEY, RowKind, restated
from replicator.model.common import quoted


def recorded_changes(
    lake: Lake, changelog: LakeTable, change: str, key: Sequence[str], next_offsets: Mapping[int, int]
) -> DataFrame:
    """Read changes in the changelog before `next_offsets` (partition → offset), with positions as in decoded events.

    `change` is the changelog's struct column. Columns of the result: k0, k1, … (the key), partition, offset, op,
    position_key.
    """
    rows, at = rows_of(lake, changelog), F.col(quoted(change))
    number = F.substring_index(at.getField("file"), ".", -1).cast("long")
    wanted = F.lit(False)
    for partition, offset in next_offsets.items():
        wanted |= (at.getField("partition") == partition) & (at.getField("offset") < offset)
    return rows.where(wanted & (at.getField("kind") != str(RowKind.UPDATE_BEFORE))).select(
        *[F.col(quoted(column)).alias(f"k{i}") for i, column in enumerate(key)],
        *[at.getField(name).alias(name) for name in ("partition", "offset", "op")],
        position_key(number, at.getField("pos")).alias("position_key"),
    )


def has_repeated_offsets(changelog: LakeTable) -> bool:
    """Return whether a topic was recreated, so that the changelog may have two changes with the same offset."""
    found = restated(changelog.property(RESTATED_KEY))
    return found is not None and found.topics > 0
