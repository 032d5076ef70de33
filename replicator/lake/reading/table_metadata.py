"""What the metadata of a lake table says. Without PyIceberg, which takes half a second to import.

Format: Iceberg's table spec, "Table Metadata Fields".
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from replicator.errors import LakeUnavailable
from replicator.lake.reading.files import Files, StoreFiles
from replicator.model.commit_marker import MARKER_KEY, CommitMarker

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAIN_BRANCH: Final = "main"
_FORMATS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table; `sequence` is 0 in tables of format version 1."""

    id: int
    parent: int | None
    sequence: int
    timestamp_ms: int
    manifest_list: str
    summary: Mapping[str, str]

    def total(self, key: str) -> int:
        """Return a number of the summary; 0 if it is missing."""
        return int(self.summary.get(key) or 0)


@dataclass(frozen=True)
class TableMetadata:
    """The metadata of a table, as it was when it was loaded.

    Attributes:
        location: that of the metadata file; None if only the catalog has it.
        values: its content.
        files: opens the files of the table.
    """

    namespace: str
    table: str
    location: str | None
    values: Mapping[str, Any]
    files: Files

    @classmethod
    def read(cls, namespace: str, table: str, location: str, files: Files) -> "TableMetadata":
        """Read a metadata file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged, or has a newer format.
        """
        with files.open(location) as stream:
            content = stream.read()
        if location.endswith(".gz.metadata.json"):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise ValueError(f"{location} is damaged: {error}") from error
        values = json.loads(content)
        if not isinstance(values, dict) or values.get("format-version") not in _FORMATS:
            raise ValueError(f"{location} is no metadata of a table of format version 1 to 3")
        found = cls(namespace, table, location, values, files)
        try:
            _ = found.snapshots, found.schema, found.tags
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{location} is no complete metadata of a table: {error!r}") from error
        return found

    @classmethod
    def of(cls, table: "Table") -> "TableMetadata":
        """Return the metadata of a table that PyIceberg loaded."""
        *namespace, name = table.name()
        # PyIceberg refuses to write metadata of format version 3 as text.
        values = table.metadata.model_dump(mode="json")
        return cls(".".join(namespace), name, table.metadata_location or None, values, StoreFiles(table.io))

    def name(self) -> tuple[str, ...]:
        """Return the namespace and the name."""
        return (*self.namespace.split("."), self.table)

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.values.get("properties") or {}
        return found

    @property
    def format_version(self) -> int:
        return int(self.values["format-version"])

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that the table has, oldest first."""
        return tuple(
            Snapshot(
                found["snapshot-id"],
                found.get("parent-snapshot-id"),
                found.get("sequence-number") or 0,
                found["timestamp-ms"],
                found["manifest-list"],
                found.get("summary") or {},
            )
            for found in self.values.get("snapshots") or ()
        )

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot; None if nothing was ever committed."""
        return self.snapshot_by_id(self.values.get("current-snapshot-id"))

    def snapshot_by_id(self, wanted: int | None) -> Snapshot | None:
        """Return a snapshot; None if the table does not have it."""
        return None if wanted is None else self._by_id.get(wanted)

    @cached_property
    def _by_id(self) -> Mapping[int, Snapshot]:
        return {found.id: found for found in self.snapshots}

    @property
    def refs(self) -> Mapping[str, Mapping[str, Any]]:
        """The tags and branches by name, in Iceberg's JSON form."""
        found: Mapping[str, Mapping[str, Any]] = self.values.get("refs") or {}
        return found

    @property
    def tags(self) -> list[str]:
        """The names of its Iceberg tags."""
        return [name for name, ref in self.refs.items() if ref["type"] == "tag"]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The current schema, in Iceberg's JSON form."""
        current, schemas = self.values.get("current-schema-id"), self.values.get("schemas") or ()
        found: Mapping[str, Any] | None = next((s for s in schemas if s["schema-id"] == current), None)
        # Early tables of format version 1 have one schema.
        return self.values["schema"] if found is None else found

    def total(self, key: str) -> int:
        """Return a number of the current snapshot's summary; 0 if it is missing."""
        return 0 if self.snapshot is None else self.snapshot.total(key)


def newest_marker(table: "TableMetadata | Table") -> CommitMarker | None:
    """Return the marker of the newest commit; None if no mirror has committed to the table.

    Raises:
        LakeUnavailable: a newer version of the engine wrote it.
    """
    text = table.properties.get(MARKER_KEY)
    try:
        return None if text is None else CommitMarker.from_json(text)
    except (ValueError, KeyError) as error:
        name = ".".join(table.name())
        raise LakeUnavailable(
            f"{name}: {error}", "use the version of replicator that wrote the table"
        ) from error
