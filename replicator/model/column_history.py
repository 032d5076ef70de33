"""Names that columns had in the source over a table's history; column rules apply to all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replicator.model.table import Column, SourceName


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """The names of one column in the source.

    Attributes:
        names: every name that the column has or had, earlier and later ones.
        maybe: names of columns of which it may be the renamed form: they disappeared when it appeared, and no DDL
            statement explains the difference.
    """

    names: frozenset[SourceName]
    maybe: frozenset[SourceName] = frozenset()

    @classmethod
    def of(cls, column: Column) -> "ColumnHistory":
        """Return the history of a column if only its current name is known."""
        return cls(frozenset({column.source_name}))

    def with_names(self, other: "ColumnHistory") -> "ColumnHistory":
        """Merge two histories of the same column."""
        return ColumnHistory(self.names | other.names, self.maybe | other.maybe)


def history_in(
    version: Mapping[str, ColumnHistory], name: str, column: Column, columns: Iterable[str]
) -> ColumnHistory:
    """Return the history of a `column` that an event with `columns` has under `name`.

    `version` has the histories of a schema version. If the version lacks the column, it may be a renamed form of any
    column that the event lacks.
    """
    own = ColumnHistory.of(column)
    if name in version:
        return own.with_names(version[name])
    missing = version.keys() - set(columns)
    maybe = frozenset(known for other in missing for known in version[other].names)
    return ColumnHistory(own.names, maybe - own.names)
