"""The keys of a source table, as far as statements show them.

Debezium names the columns of a table's key, but not the key itself. Without a primary key it chooses a unique key, and
it keeps these columns when that key is dropped or its columns may be NULL. Then they do not identify rows any more.

Source: MySQL's reference manual, "CREATE TABLE Statement", "ALTER TABLE Statement"; for the names that the server gives
to unnamed keys, `make_unique_key_name` in `sql/sql_table.cc`. All names here are casefolded, as MySQL compares them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from replicator.schema.ddl.effects import PRIMARY, KeyChange, KeyDefinition


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The keys of a table at a position.

    Attributes:
        known: name → key; the name is assumed if the definition has none.
        complete: whether it has no other unique key.
        lost: whether a key was dropped that is not known; it may have been the one that Debezium uses, unless there is
            a primary key.
    """

    known: Mapping[str, KeyDefinition] = field(default_factory=dict)
    complete: bool = False
    lost: bool = False

    def identify(self, columns: Collection[str], nullable: Collection[str]) -> bool | None:
        """Return whether the values of `columns` identify a row; None if that is not known.

        `nullable` are the table's columns that may be NULL. A column of the primary key never is.
        """
        for name, key in self.known.items():
            unique = key.columns
            if unique and unique.issubset(columns) and (name == PRIMARY or unique.isdisjoint(nullable)):
                return True
        return False if self.complete or self.lost else None

    def understood(self, columns: Collection[str]) -> "TableKeys":
        """Return the keys of a table that was just created, with `columns` as the key that Debezium names.

        If no key has these columns, the statement was not understood.
        """
        return self if not columns or self.identify(columns, ()) else replace(self, complete=False)

    def after(
        self, change: KeyChange, renamed: Iterable[tuple[str, str]] = (), dropped: Collection[str] = ()
    ) -> "TableKeys":
        """Return the keys after a statement, which also renamed and dropped columns.

        The order of the parts of a statement does not matter: MySQL drops keys before it adds others.
        """
        names, gone = dict(renamed), frozenset(dropped)
        found = self._without(change.dropped)
        new_names = dict(change.renamed)
        known = {new_names.get(name, name): key for name, key in found.known.items()}
        if names or gone:
            known = {
                name: now
                for name, key in known.items()
                if (now := _with_columns(key, names, gone)) is not None
            }
        for key in change.added:
            known[key.name or _generated_name(key, known)] = key
        complete = found.complete or (change.created and change.like is None)
        return replace(found, known=known, complete=complete)

    def _without(self, dropped: Collection[str]) -> "TableKeys":
        known = {name: key for name, key in self.known.items() if name not in dropped}
        unknown = [name for name in dropped if name not in self.known and name != PRIMARY]
        if not unknown:
            return replace(self, known=known)
        if self.complete:
            # Its name was generated, and differs from the one that was assumed. Others may too.
            known = {name: key if key.name else replace(key, columns=None) for name, key in known.items()}
            return replace(self, known=known)
        return replace(self, known=known, lost=self.lost or PRIMARY not in known)


def primary_key(columns: Iterable[str]) -> KeyChange:
    """Return the definition of a primary key, as if a statement had added it."""
    names = [name.casefold() for name in columns]
    return KeyChange(added=(KeyDefinition(PRIMARY, names[0], frozenset(names)),)) if names else KeyChange()


def _with_columns(
    key: KeyDefinition, renamed: Mapping[str, str], dropped: Collection[str]
) -> KeyDefinition | None:
    """Return a key after its columns changed; None if it has no column left."""
    if key.columns is None:
        return key
    columns = frozenset(renamed.get(name, name) for name in key.columns if name not in dropped)
    return replace(key, columns=columns) if columns else None


def _generated_name(key: KeyDefinition, taken: Collection[str]) -> str:
    """Return the name that the server gives to an unnamed key."""
    base = key.first or "functional_index"
    names = (base, *(f"{base}_{number}" for number in range(2, 100)))
    return next((name for name in names if name not in taken and name != PRIMARY), base)
