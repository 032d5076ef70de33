"""The Arrow types of the lake's types."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from replicator.model.types import LakeType

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "list<float>": pa.list_(pa.field("element", pa.float32())),
}


def arrow_type(lake_type: LakeType) -> pa.DataType:
    """Return the Arrow type of a lake type."""
    if lake_type.name == "decimal":
        return pa.decimal128(lake_type.precision, lake_type.scale)
    return _TYPES[lake_type.name]
