"""Which tables have a history, and the columns that it has beside those of the changelog. Without Spark."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import assert_never

from replicator.config import Config
from replicator.pipelines.query.names import TableName


class Kind(StrEnum):
    """What a history keeps."""

    VERSIONS = "scd2"
    """A row for each version of a row, with the times between which it was valid."""
    DELETED = "soft_delete"
    """The newest version of each row, also of deleted ones."""
    APPENDED = "append"
    """A row for each change, with the columns of now: rows are only added."""


@dataclass(frozen=True, slots=True)
class History:
    """The history of a table, as the configuration says.

    Attributes:
        mirror: the lake table whose rows it has.
        table: the lake table of the history. Its name is the name of the pipeline too; those of files have no dot.
        columns: the columns whose changes make a version; empty for all.
    """

    mirror: TableName
    table: TableName
    kind: Kind
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which commands and the log call it."""
        return str(self.table)

    @property
    def text(self) -> str:
        """What the configuration says, as a text: another one is tried again after a failure."""
        return repr(self)

    @property
    def fingerprint(self) -> str:
        """What its rows depend on, as a hash; it begins with the version of `versions_of` and of the layout."""
        return sha256(f"history-1 {self.kind} {self.columns!r}".encode()).hexdigest()[:16]

    def tracked(self, columns: Collection[str], key: Collection[str]) -> list[str]:
        """Return which of the columns make a version when they change: never those of the key, which is another row."""
        wanted = {name.casefold() for name in self.columns}
        return [c for c in columns if c not in key and (not wanted or c.casefold() in wanted)]


def explained_history(history: History) -> Iterator[str]:
    """Yield how a history is kept current, in lines."""
    versions = "" if history.kind is Kind.APPENDED else ", and the open versions of their keys"
    yield f"reads the new changes of {history.mirror.changes}{versions}"
    match history.kind:
        case Kind.VERSIONS:
            columns = ", ".join(history.columns) or "any column"
            yield f"a change of {columns} makes a version; several within one transaction leave one"
        case Kind.APPENDED:
            yield "each change adds a row: the row after it, or the deleted one"
        case Kind.DELETED:
            yield "a row that is deleted keeps its last values, and gets the time in deleted_at"
        case _:
            assert_never(history.kind)


def histories_of(config: Config) -> tuple[History, ...]:
    """Return the histories that a configuration asks for."""
    lake, found = config.lake, []
    for section in config.tables:
        if section.history is not None:
            name = section.name.partition(".")[2]
            mirror, table = TableName(lake.namespace, name), TableName(lake.history_namespace, name)
            found.append(History(mirror, table, Kind(section.history), section.history_columns))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names of a history's own columns, with underscores before them if the table has a column of that name."""

    valid_from: str
    valid_to: str
    is_current: str
    version: str
    deleted_at: str
    changed_at: str
    is_deleted: str

    @classmethod
    def beside(cls, columns: Collection[str]) -> "OwnNames":
        """Return the names beside columns of a table."""
        taken = {name.lower() for name in columns}

        def free(name: str) -> str:
            while name in taken:
                name = f"_{name}"
            return name

        names = ("valid_from", "valid_to", "is_current", "_version", "deleted_at", "changed_at", "is_deleted")
        return cls(*map(free, names))
