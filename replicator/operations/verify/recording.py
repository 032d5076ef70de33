"""Read and write `source.json`: the source's state at the end of a recording (schemas/recording-source-v1.json)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from replicator.errors import ArchiveError
from replicator.operations.verify.checksum import CanonicalColumn, Kind, TableChecksum

FORMAT = "replicator-recording-source"
VERSION = 1
SOURCE_NAME = "source.json"


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table at the end of the recording: its key, the compared columns, number of rows and checksum."""

    key: tuple[str, ...]
    columns: tuple[CanonicalColumn, ...]
    checksum: TableChecksum


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The source at the end of a recording. `tables` is keyed by `database.table`."""

    server_version: str
    taken_at: datetime
    gtid_set: str
    binlog_file: str
    binlog_position: int
    seed: int
    changes: int
    transactions: int
    tables: Mapping[str, RecordedTable]

    def to_json(self) -> str:
        """Return the text of source.json."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "server_version": self.server_version,
            "taken_at": self.taken_at.isoformat(),
            "gtid_set": self.gtid_set,
            "position": {"file": self.binlog_file, "pos": self.binlog_position},
            "workload": {"seed": self.seed, "changes": self.changes, "transactions": self.transactions},
            "tables": {name: _table_to_json(table) for name, table in sorted(self.tables.items())},
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

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
                taken_at=datetime.fromisoformat(document["taken_at"]),
                gtid_set=document["gtid_set"],
                binlog_file=document["position"]["file"],
                binlog_position=int(document["position"]["pos"]),
                seed=int(document["workload"]["seed"]),
                changes=int(document["workload"]["changes"]),
                transactions=int(document["workload"]["transactions"]),
                tables={name: _table_from_json(table) for name, table in document["tables"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{file} cannot be used: {type(error).__name__}: {error}") from error


def _table_to_json(table: RecordedTable) -> dict[str, Any]:
    return {
        "rows": table.checksum.rows,
        "checksum": table.checksum.hex,
        "key": list(table.key),
        "columns": [{"name": column.name, "kind": str(column.kind)} for column in table.columns],
    }


def _table_from_json(table: Mapping[str, Any]) -> RecordedTable:
    digits = table["checksum"]
    return RecordedTable(
        key=tuple(table["key"]),
        columns=tuple(CanonicalColumn(column["name"], Kind(column["kind"])) for column in table["columns"]),
        checksum=TableChecksum(int(table["rows"]), int(digits[:16], 16), int(digits[16:], 16)),
    )
