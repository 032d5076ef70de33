"""In which form the events of a table write decimals, found by looking at some of them.

Kafka Connect's JSON has two forms, and no schema says which: a number (``decimal.format=NUMERIC``) or, by default,
the bytes of the unscaled value in base64. With ``decimal.handling.mode=string`` Debezium writes the number as text.
A quoted value may be both: ``"1234"`` is a number and base64 of three bytes, and once parsed by Spark the quotes are
gone. So the form is decided for all events of one schema together, from values that tell it.

- Events with schemas: quoted is base64, else a number; text would have another schema.
- Events without: a value that is no number is base64, a quoted one that is no base64 is text. Where quoted values
  are all both, which base64 of several values hardly is, they are taken as text.

Where both forms occur, each value is decoded as what it is (`Wire.EITHER_DECIMAL`), which costs more. While there are
only nulls the form stays open (`Wire.UNSEEN_DECIMAL`). The first value then, as one that cannot be read because the
connector was set otherwise meanwhile, makes the whole batch be looked at again.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from replicator.model.table import Column
from replicator.model.types import Wire

NUMBER: Final = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?"
_IMAGES: Final = ("before", "after")


def undecided(columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns whose form is still to be found."""
    return tuple(c for c in columns if c.wire is Wire.UNSEEN_DECIMAL)


def form_of(
    values: Iterable[bytes], columns: Sequence[Column], *, with_schema: bool, flattened: bool = False
) -> Wire | None:
    """The form in which change events (as the log has them) write `columns`; None where no value tells."""
    names = [c.written for c in columns]
    seen = {
        _kind(found)
        for value in values
        for found in _decimals(value, names, with_schema, flattened)
        if found is not None
    }
    number, text = "number" in seen, "text" in seen
    base64 = bool(seen & {"base64", "text", "both"}) if with_schema else "base64" in seen and not text
    if base64:
        return Wire.EITHER_DECIMAL if number else Wire.BASE64_DECIMAL
    return Wire.PLAIN if seen else None


def _decimals(value: bytes, names: Sequence[str], with_schema: bool, flattened: bool) -> list[Any]:
    try:
        document = json.loads(value)
        event = document["payload"] if with_schema else document
        images = [event] if flattened else [event.get(name) for name in _IMAGES]
        return [image.get(name) for image in images if isinstance(image, dict) for name in names]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _kind(value: Any) -> str:
    if not isinstance(value, str):
        return "number"
    if not re.fullmatch(NUMBER, value):
        return "base64"
    return "text" if len(value) % 4 or "." in value or "-" in value else "both"


def telling_events(
    events: DataFrame, columns: Sequence[Column], *, with_schema: bool, flattened: bool = False
) -> list[bytes]:
    """A few events (columns offset, value; all with a schema or all without) that show how `columns` are written."""
    row = StructType([StructField(c.written, StringType()) for c in columns])
    event = row if flattened else StructType([StructField(image, row) for image in _IMAGES])
    whole = StructType([StructField("payload", event)]) if with_schema else event
    parsed = events.withColumn("e", F.from_json(F.col("value").cast("string"), whole))
    path = F.col("e.payload" if with_schema else "e")
    images = [path] if flattened else [path.getField(image) for image in _IMAGES]
    texts = [image.getField(c.written) for image in images for c in columns]
    numbers, others = _any(texts, like=True), _any(texts, like=False)
    found = parsed.agg(
        F.min_by("value", F.when(numbers, F.col("offset"))),
        F.max_by("value", F.when(numbers, F.col("offset"))),
        F.min_by("value", F.when(others, F.col("offset"))),
    ).first()
    return [bytes(value) for value in found or () if value is not None]


def _any(texts: Sequence[SparkColumn], *, like: bool) -> SparkColumn:
    condition = F.lit(False)
    for text in texts:
        number = text.rlike(f"^{NUMBER}$")
        condition |= F.coalesce(number if like else ~number, F.lit(False))
    return condition
