"""Trace the names of each column over the versions of a table's schema."""

from dataclasses import dataclass, field

from replicator.model.column_history import ColumnHistory
from replicator.model.table import SourceName
from replicator.schema.history import SchemaHistory


@dataclass(slots=True, eq=False)
class _Identity:
    names: set[SourceName] = field(default_factory=set)
    maybe: "list[_Identity]" = field(default_factory=list)

    def history(self) -> ColumnHistory:
        found: list[_Identity] = []
        left = list(self.maybe)
        while left:
            if (other := left.pop()) not in found:
                found.append(other)
                left += other.maybe
        maybe = frozenset(name for other in found for name in other.names)
        return ColumnHistory(frozenset(self.names), maybe - self.names)


def column_histories(history: SchemaHistory) -> list[dict[str, ColumnHistory]]:
    """Return column → its names over time, for each version of a table."""
    before: dict[str, _Identity] = {}
    versions: list[dict[str, _Identity]] = []
    for version in history.versions:
        present = {now: before[was] for was, now in version.carried.items() if was in before}
        vanished = [before[name] for name in sorted(version.unexplained) if name in before]
        for column in version.schema.columns:
            identity = present.setdefault(column.name, _Identity(maybe=vanished))
            identity.names.add(column.source_name)
        versions.append(present)
        before = present
    known: dict[int, ColumnHistory] = {}
    for present in versions:
        for identity in present.values():
            known.setdefault(id(identity), identity.history())
    return [{name: known[id(identity)] for name, identity in present.items()} for present in versions]
