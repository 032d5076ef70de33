"""The fields of an event's source block that are wanted."""

from typing import Final

SOURCE_FIELDS: Final = (
    ("file", "string"),
    ("pos", "long"),
    ("row", "int"),
    ("server_id", "long"),
    ("gtid", "string"),
    ("ts_ms", "long"),
    ("snapshot", "string"),
)
"""Names, and types by the names that they have in Avro and in Spark's SQL alike."""
