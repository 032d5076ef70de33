"""What a change is called."""

from enum import StrEnum


class RowKind(StrEnum):
    """The four kinds of normalized records."""

    INSERT = "INSERT"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"
    DELETE = "DELETE"


class SourceOp(StrEnum):
    """Debezium's one-letter operations."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    """A row read by the connector's snapshot."""
    TRUNCATE = "t"
    MESSAGE = "m"
