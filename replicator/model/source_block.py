"""Fields that are read from an event's source block."""

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
"""Names and types; the type names are the same in Avro and in Spark SQL."""
