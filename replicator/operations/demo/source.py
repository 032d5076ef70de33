"""Read `source.json`: the source's state at the end of the recording (schemas/recording-source-v2.json)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from replicator.errors import ArchiveError
from replicator.model.table import lake_names
from replicator.verify.canonical import Form, LakeColumn
from replicator.verify.lake_rows import Checksum

FORMAT: Final = "replicator-recording-source"
VERSION: Final = 2
SOURCE_NAME: Final = "source.json"


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table at the end of the recording: the compared columns, and the checksum of all rows."""

    columns: tuple[LakeColumn, ...]
    checksum: Checksum


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The source at the end of a recording.

    Attributes:
        changes: number of rows that were changed after the snapshot.
        tables: ``database.table`` → its state.
    """

    server_version: str
    binlog_file: str
    binlog_position: int
    changes: int
    tables: Mapping[str, RecordedTable]

    @classmethod
    def load(cls, archive: Path) -> Self:
        """Load the source.json beside an archive's manifest. Raises ArchiveError."""
        file = archive / SOURCE_NAME
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if (document["format"], document["version"]) != (FORMAT, VERSION):
                raise ArchiveError(f"{file} is of a kind or version that this program cannot read")
            return cls(
                server_version=document["server_version"],
                binlog_file=document["position"]["file"],
                binlog_position=int(document["position"]["pos"]),
                changes=int(document["workload"]["changes"]),
                tables={name: _table(table) for name, table in document["tables"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{file} cannot be used: {type(error).__name__}: {error}") from error


def _table(table: Mapping[str, Any]) -> RecordedTable:
    names = lake_names(column["name"] for column in table["columns"])
    columns = tuple(
        LakeColumn(
            column["name"],
            names[column["name"]],
            Form(column["form"]),
            column["type"],
            column["nullable"],
        )
        for column in table["columns"]
    )
    return RecordedTable(columns, Checksum(int(table["rows"]), int(table["checksum"], 16)))
