"""What a parser tells of events: the texts of their fields, and which of them it cannot read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from replicator.model.shapes import Path

Values: TypeAlias = pa.Array | tuple[pa.BooleanArray, Mapping[str, "Values"]]
"""The values of a field: texts, or those of the right type. Of a nested record: where it is, and its fields."""


@dataclass(frozen=True, slots=True)
class ParsedEvents:
    """Events as columns.

    Attributes:
        fields: name → values.
        misplaced: place of a nested record → which events have something else there.
        broken: which events cannot be read at all.
        verdict: why.
    """

    fields: Mapping[str, Values]
    misplaced: Mapping[Path, pa.BooleanArray]
    broken: pa.BooleanArray
    verdict: str
