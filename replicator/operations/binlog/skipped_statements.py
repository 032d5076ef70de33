"""Refuse an import in which Debezium skipped a statement that defines one of the tables.

A running mirror compares definitions with the source; an import has none. Of a statement that Debezium cannot parse,
the schema-change topic has the text and no definition.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from replicator.errors import BinlogError
from replicator.model.events import RawRecord
from replicator.model.table import TableId

_DEFINES_TABLE: Final = re.compile(
    r"\s*+(?:/\*(?:[^*]++|\*(?!/))*+\*/\s*+)*+(?:CREATE|ALTER|DROP|RENAME)\s++(?!TEMPORARY\b)[^(]*?\b(?:TABLES?|INDEX)\b",
    re.IGNORECASE,
)
_SHOWN: Final = 200


class SkippedStatements:
    """Checks the events of an import. `tables` are those that it imports; `schema_topic` has their definitions."""

    def __init__(self, schema_topic: str, tables: Iterable[TableId]) -> None:
        self._schema_topic = schema_topic
        names = "|".join(sorted({re.escape(table.name) for table in tables}))
        self._names = re.compile(rf"(?<![\w$])(?:{names})(?![\w$])", re.IGNORECASE) if names else None

    def check(self, event: RawRecord) -> None:
        """Check one event.

        Raises:
            BinlogError: it is a statement without a definition, which may define an imported table.
        """
        if event.topic != self._schema_topic or event.value is None or self._names is None:
            return
        value: dict[str, Any] = json.loads(event.value)
        value = value.get("payload", value)
        ddl = str(value.get("ddl") or "")
        if value.get("tableChanges") or not _DEFINES_TABLE.match(ddl):
            return
        if (found := self._names.search(ddl)) is not None:
            raise BinlogError(
                f"Debezium cannot parse a statement that may define the table {found[0]}: {ddl[:_SHOWN]}",
                "import the files before that statement, and begin another archive after it",
            )
