"""Which changes of an input a refresh takes, and which are held for the next one.

A changelog's commit has changes from before and after a boundary. Which are after it, their positions tell. In each
partition of the log these follow all others, as the connector sends the events of a partition in the order of the
source. So a few numbers tell the next refresh which changes were held.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.errors import Unsettled
from replicator.pipelines.inputs.positions import Flags, any_of
from replicator.pipelines.inputs.progress import InputProgress

_WITH_IMAGES: Final = frozenset({"c", "u", "d", "h"})
"""Operations of changes that have all images: of the log, and differences that a re-read found."""
META: Final = ("op", "partition", "offset", "commit", "later")
"""What is known of each image of a change."""
_PLACE: Final = ("partition", "offset", "commit")
_NEXT: Final = "it is refreshed once the connector has passed them, with the next change of the source"


def is_pending(change: SparkColumn, progress: InputProgress) -> SparkColumn:
    """Return whether a result with this progress lacks a change; `change` is the struct column of the changelog.

    The first part alone lets Iceberg skip files.
    """
    commit = change.getField("commit")
    newer = commit > F.lit(progress.commit)
    if progress.held_commit is None or not progress.held:
        return newer
    place = [
        (change.getField("partition") == F.lit(partition)) & (change.getField("offset") >= F.lit(offset))
        for partition, offset in progress.held.items()
    ]
    held = (commit >= F.lit(progress.held_commit)) & any_of(place)
    return (commit >= F.lit(progress.first_commit)) & (newer | held)


def held_pending(change: pa.StructArray, progress: InputProgress) -> Flags:
    """Return which held changes a result with this progress lacks, as `is_pending` tells."""
    partition, offset, commit = (pc.struct_field(change, name).to_numpy(False) for name in _PLACE)
    found: Flags = commit > progress.commit
    if progress.held_commit is not None and progress.held:
        found |= (commit >= progress.held_commit) & _follows(partition, offset, progress.held)
    return found


@dataclass(frozen=True, slots=True)
class Pending:
    """What the pending changes of an input are.

    Attributes:
        new: number of images before the boundary.
        later: number of images after it.
        held: partition of the log → the first offset after the boundary.
        held_commit: the first commit with a change after it; None if there is none.
        restated: why the new changes do not tell all that changed; None if they do.
    """

    new: int = 0
    later: int = 0
    held: Mapping[int, int] = field(default_factory=dict)
    held_commit: int | None = None
    restated: str | None = None


def classified(rows: pa.Table, name: str) -> Pending:
    """Return what pending changes are; `rows` has the columns op, partition, offset, commit and later.

    Raises:
        Unsettled: the changes after the boundary cannot be told from the others, or cannot be undone.
    """
    later = rows.column("later").to_numpy().astype(bool)
    ops = rows.column("op")
    if strange := _strange(ops, later):
        what = "rows that were read" if strange == "r" else f"changes without images (op {strange})"
        raise Unsettled(f"{name} has {what} after the position that the connector has confirmed", _NEXT)
    restated = _restated(_strange(ops, ~later))
    if not later.any():
        return Pending(rows.num_rows, 0, restated=restated)
    partitions, offsets, commits = (rows.column(column).cast(pa.int64()).to_numpy() for column in _PLACE)
    held = {int(p): int(offsets[later & (partitions == p)].min()) for p in np.unique(partitions[later])}
    first = int(commits[later].min())
    mixed = ~later & (commits >= first) & _follows(partitions, offsets, held)
    if mixed.any():
        raise Unsettled(f"{name} has changes from before the boundary behind later ones", _NEXT)
    return Pending(int((~later).sum()), int(later.sum()), held, first, restated)


def _follows(partitions: Any, offsets: Any, held: Mapping[int, int]) -> Flags:
    found = np.zeros(len(offsets), bool)
    for partition, offset in held.items():
        found |= (partitions == partition) & (offsets >= offset)
    return found


def _strange(ops: pa.ChunkedArray, chosen: Flags) -> str | None:
    found = pc.unique(ops.filter(pa.array(chosen))).to_pylist()
    return min((str(op) for op in found if op not in _WITH_IMAGES), default=None)


def _restated(op: str | None) -> str | None:
    match op:
        case None:
            return None
        case "t":
            return "the table was truncated"
        case "r":
            return "the connector read the table again"
        case _:
            return f"changes have no images (op {op})"
