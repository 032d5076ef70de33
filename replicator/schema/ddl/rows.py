"""Statements that change rows: of which tables, and which do so without row events.

The result contains every table that the statement changes itself; it may contain others. The tables that its triggers
and its foreign keys change are not in its text.

Grammar: MySQL's reference manual, "Data Manipulation Statements".

MySQL logs an `ALTER TABLE` as a statement, whatever it does to rows. Of the statements about partitions, `TRUNCATE`,
`DROP` and `EXCHANGE PARTITION`, and `DISCARD` and `IMPORT … TABLESPACE`, change which rows a table has. So may
`REORGANIZE PARTITION` of lists: MySQL 9.7 removes the rows of values that no new partition has. With ranges it fails if
a row has no partition, as `PARTITION BY` does. `ADD` and `COALESCE PARTITION` and `REMOVE PARTITIONING` change no row.

Grammar and effects: MySQL's reference manual, "ALTER TABLE Statement", "ALTER TABLE Partition Operations", "Management
of RANGE and LIST Partitions", "ALTER TABLE and Generated Columns".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    parse,
    table_name,
)
from replicator.schema.ddl.tokens import Token

_MODIFIERS: Final = frozenset({"LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM"})
_CALLS: Final = frozenset({"SELECT", "DO", "CALL", "(", "TABLE", "VALUES"})
"""First words of statements that change rows only by functions or procedures that they call."""


@dataclass(frozen=True, slots=True)
class ChangedTables:
    """The tables that a statement may change: `tables`, and all tables of `databases`.

    Attributes:
        calls: what the statement calls, in lower case. A stored function may change any table.
    """

    tables: frozenset[TableId] = field(default_factory=frozenset)
    databases: frozenset[str] = field(default_factory=frozenset)
    calls: frozenset[str] = field(default_factory=frozenset)

    def __or__(self, other: "ChangedTables") -> "ChangedTables":
        if all((other.tables <= self.tables, other.databases <= self.databases, other.calls <= self.calls)):
            return self  # A transaction may have many statements of the same tables.
        return ChangedTables(
            self.tables | other.tables, self.databases | other.databases, self.calls | other.calls
        )

    def __bool__(self) -> bool:
        return bool(self.tables or self.databases)

    def may_have(self, table: TableId) -> bool:
        """Return whether `table` may be one of them; letter case is ignored, as on some servers."""
        names = {(t.database.casefold(), t.name.casefold()) for t in self.tables}
        databases = {database.casefold() for database in self.databases}
        return (
            table.database.casefold(),
            table.name.casefold(),
        ) in names or table.database.casefold() in databases


def changed_tables(text: str) -> ChangedTables:
    """Return the tables that a statement in the binlog changes, which may begin with ``use `database`;``.

    The result is empty if it is no DML.
    """
    database = ""
    for statement in parse(text):
        if statement[0].keyword == "USE" and len(statement) == 2:
            database = statement[1].name or ""
        else:
            # What follows a semicolon is in the body of a routine.
            found = _changed(statement, database)
            return replace(found, calls=_calls(statement)) if found else found
    return ChangedTables()


def _calls(statement: Statement) -> frozenset[str]:
    return frozenset(
        token.name.casefold()
        for token, following in pairwise(statement)
        if token.name is not None and following.keyword == "("
    )


def _changed(statement: Statement, database: str) -> ChangedTables:
    rest = statement[1:]
    match statement[0].keyword:
        case "INSERT" | "REPLACE":
            return _first_table(rest, database)
        case "UPDATE":
            return _updated(rest, database)
        case "DELETE":
            return _deleted(rest, database)
        case "LOAD":
            return _first_table(_after(rest, "TABLE"), database)
        case "CREATE" if _creates_with_rows(rest):
            return _first_table(_created(rest), database)
        case "WITH":
            return _all_names(rest, database)
        case word if word in _CALLS:
            return _whole(database)
    return ChangedTables()


def _whole(database: str) -> ChangedTables:
    return ChangedTables(databases=frozenset({database} - {""}))


def _first_table(tokens: Statement, database: str) -> ChangedTables:
    """Return the table whose name is first after modifiers; all tables of the database if there is no name."""
    start = next((i for i, t in enumerate(tokens) if t.keyword not in _MODIFIERS), len(tokens))
    found = _name_at(tokens, start, database)
    return _whole(database) if found is None else ChangedTables(frozenset({found}))


def _updated(tokens: Statement, database: str) -> ChangedTables:
    references = _before(tokens, "SET")
    if any(t.keyword in (",", "JOIN", "STRAIGHT_JOIN", "(") for t in references):
        return _all_names(references, database)
    return _first_table(references, database)


def _deleted(tokens: Statement, database: str) -> ChangedTables:
    targets = _before(tokens, "WHERE")
    is_single = _is_from_first(targets) and not any(t.keyword in (",", "USING") for t in targets)
    return _first_table(targets, database) if is_single else _all_names(tokens, database)


def _is_from_first(tokens: Statement) -> bool:
    start = next((t.keyword for t in tokens if t.keyword not in _MODIFIERS - {"FROM"}), "")
    return start == "FROM"


def _creates_with_rows(tokens: Statement) -> bool:
    """Return whether CREATE TABLE ... SELECT follows; a temporary table is not mirrored."""
    return bool(tokens) and tokens[0].keyword == "TABLE" and any(t.keyword == "SELECT" for t in tokens)


def _created(tokens: Statement) -> Statement:
    rest = tokens[1:]
    return rest[3:] if [t.keyword for t in rest[:3]] == ["IF", "NOT", "EXISTS"] else rest


def _all_names(tokens: Statement, database: str) -> ChangedTables:
    """Return everything that may be the name of a table."""
    found = frozenset(_names(tokens, database))
    return ChangedTables(found) if found else _whole(database)


def _names(tokens: Statement, database: str) -> Iterator[TableId]:
    for i, token in enumerate(tokens):
        if token.name is None:
            continue
        if database:
            yield TableId(database, token.name)
        if (qualified := _name_at(tokens, i, database)) is not None:
            yield qualified


def _name_at(tokens: Statement, at: int, database: str) -> TableId | None:
    """Return the table name that begins at a token; None if there is none, or if it has no database."""
    names = [t.name for t in tokens[at : at + 3]]
    if not names or names[0] is None:
        return None
    if len(names) == 3 and tokens[at + 1].keyword == "." and names[2] is not None:
        return TableId(names[0], names[2])
    return TableId(database, names[0]) if database else None


def _before(tokens: Statement, keyword: str) -> Statement:
    end = next((i for i, t in enumerate(tokens) if t.keyword == keyword), len(tokens))
    return tokens[:end]


def _after(tokens: Statement, keyword: str) -> Statement:
    start = next((i for i, t in enumerate(tokens) if t.keyword == keyword), len(tokens))
    return tokens[start + 1 :]


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
            table = TableId(name.database or database, name.table)
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
    depth = 0
    for token, following in pairwise(column):
        if token.keyword in ("(", ")"):
            depth += 1 if token.keyword == "(" else -1
        if depth == 0 and token.keyword == "AS" and following.keyword == "(":
            return True
    return False
