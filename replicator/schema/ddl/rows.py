"""Statements that change rows without row events, and what they show of columns whose values the server computes.

MySQL logs an `ALTER TABLE` as a statement, whatever it does to rows. Of the statements about partitions, `TRUNCATE`,
`DROP` and `EXCHANGE PARTITION`, and `DISCARD` and `IMPORT … TABLESPACE`, change which rows a table has. So may
`REORGANIZE PARTITION` of lists: MySQL 9.7 removes the rows of values that no new partition has. With ranges it fails if
a row has no partition, as `PARTITION BY` does. `ADD` and `COALESCE PARTITION` and `REMOVE PARTITIONING` change no row.

Grammar and effects: MySQL's reference manual, "ALTER TABLE Statement", "ALTER TABLE Partition Operations", "Management
of RANGE and LIST Partitions", "ALTER TABLE and Generated Columns".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.tables import (
    Statement,
    TableName,
    altered_table,
    column_definitions,
    defined_elements,
    has_keywords,
    table_name,
    with_depth,
)
from replicator.schema.ddl.tokens import Token

_OF_PARTITIONS: Final = frozenset({"TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT"})
_OF_TABLESPACE: Final = frozenset({"DISCARD", "IMPORT"})
_OF_CHARACTERS: Final = frozenset({"COLLATE", "CHARSET"})
_LONGEST: Final = 200
"""Maximum length of the description of a statement."""


def unlogged_changes(statements: Iterable[Statement], database: str) -> list[tuple[TableId, str]]:
    """Return each table whose rows statements change without events, and the statement; `database` is the current one.

    If one statement does that twice to a table, its first part is described.
    """
    found: dict[TableId, str] = {}
    for statement in statements:
        for name, specs in _changes(statement):
            table = name.within(database)
            if table not in found:
                found[table] = specs.described()
    return list(found.items())


def generated_columns(statements: Iterable[Statement]) -> dict[str, bool]:
    """Return the casefolded name of each column that statements define → whether it is a generated one."""
    definitions = (d for statement in statements for d in column_definitions(statement))
    return {d[0].name.casefold(): _is_generated(d) for d in definitions if d[0].name}


def changes_collation(statements: Iterable[Statement]) -> bool:
    """Return whether statements may give columns of a table another character set or collation.

    Definitions do not contain the collation.
    """
    altered = filter(None, map(altered_table, statements))
    return any(_changes_collation(spec) for _, specs in altered for spec in specs)


def _changes_collation(spec: Sequence[Token]) -> bool:
    if has_keywords(spec, 0, "CONVERT", "TO"):
        return True
    if spec[0].keyword not in ("CHANGE", "MODIFY"):
        return False
    return any(
        spec[at].keyword in _OF_CHARACTERS or has_keywords(spec, at, "CHARACTER", "SET")
        for at in range(len(spec))
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The specifications of an ALTER TABLE from `first` on, before `end`."""

    table: TableName
    specs: Sequence[Sequence[Token]]
    first: int
    end: int

    def described(self) -> str:
        """Return them as text, without comments and the content of strings."""
        text = ""
        for spec in self.specs[self.first : min(self.end, self.first + _LONGEST)]:
            # Half of it may be spaces that are removed below.
            if len(text) > 2 * _LONGEST:
                break
            text += (", " if text else "") + " ".join(map(_word, spec[:_LONGEST]))
        whole = (
            f"ALTER TABLE {self.table.table} {text}".replace("( ", "(")
            .replace(" )", ")")
            .replace(" . ", ".")
            .replace(" ,", ",")
        )
        return whole if len(whole) <= _LONGEST else whole[: _LONGEST - 1] + "…"


def _changes(statement: Statement) -> Iterator[tuple[TableName, _Part]]:
    if (altered := altered_table(statement)) is None:
        return
    name, specs = altered
    last_list = max((at for at, spec in enumerate(specs) if _has_list(spec)), default=-1)
    for index, spec in enumerate(specs):
        if _changes_partitions(spec, has_list=last_list >= index):
            # The names of several partitions are separated by commas, as specifications are.
            part = _Part(name, specs, index, len(specs))
            yield name, part
            if (other := _exchanged(spec)) is not None:
                # Without a database, it is in the current one, as the altered table is.
                yield other, part
        elif (spec[0].keyword in _OF_TABLESPACE and has_keywords(spec, 1, "TABLESPACE")) or _computes(spec):
            yield name, _Part(name, specs, index, index + 1)


def _changes_partitions(spec: Sequence[Token], *, has_list: bool) -> bool:
    """Return whether a specification changes the rows of partitions.

    `has_list` is whether it, or what follows, defines a partition by a list.
    """
    if not has_keywords(spec, 1, "PARTITION"):
        return False
    if spec[0].keyword != "REORGANIZE":
        return spec[0].keyword in _OF_PARTITIONS
    return has_list


def _has_list(spec: Sequence[Token]) -> bool:
    return any(token.keyword == "VALUES" and after.keyword == "IN" for token, after in pairwise(spec))


def _exchanged(spec: Sequence[Token]) -> TableName | None:
    """Return the table in `EXCHANGE PARTITION partition WITH TABLE table`; None for any other specification."""
    if spec[0].keyword != "EXCHANGE" or not has_keywords(spec, 3, "WITH", "TABLE"):
        return None
    return table_name(spec, 5)[0]


def _computes(spec: Sequence[Token]) -> bool:
    """Return whether a specification gives a column of the table an expression, perhaps the one that it had."""
    if spec[0].keyword not in ("CHANGE", "MODIFY"):
        return False
    return any(map(_is_generated, defined_elements(spec)))


def _word(token: Token) -> str:
    return (token.name or token.keyword or "'…'")[:_LONGEST]


def _is_generated(column: Sequence[Token]) -> bool:
    return any(
        depth == 0 and token.keyword == "AS" and following.keyword == "("
        for (token, depth), (following, _) in pairwise(with_depth(column))
    )
