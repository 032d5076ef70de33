"""What the table of a result records of its newest refresh, beside the commit marker.

Described in schemas/pipeline-v1.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from replicator.errors import ForeignTable
from replicator.model.recorded import Record
from replicator.model.table import RESULT_KEY
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.progress import InputProgress

RECORD_KEY: Final = RESULT_KEY
"""Table property of a result: its `ResultRecord`."""


@dataclass(frozen=True, slots=True)
class ResultRecord(Record):
    """The state of a result.

    Attributes:
        name: the name of the pipeline.
        fingerprint: that of the definition by which all rows were computed.
        boundary: the rows are those that the definition computes of its inputs at this boundary.
        inputs: the input, `namespace.table` → its progress.
        key: the columns that identify a row; empty without a key.
        state: whether the table has the column with the state of aggregates.
    """

    WHAT = "the record of a pipeline"
    SEPARATORS = (",", ":")
    name: str
    fingerprint: str
    boundary: Boundary
    inputs: Mapping[str, InputProgress] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    state: bool = False


def record_of(text: str | None, table: str) -> ResultRecord | None:
    """Return what the property of a table says; None if it has none.

    Raises:
        ForeignTable: it cannot be read.
    """
    try:
        return None if text is None else ResultRecord.from_json(text)
    except ValueError as error:
        raise ForeignTable(
            f"{table}: {error}", "use the version of replicator that wrote the table"
        ) from error
