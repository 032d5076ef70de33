"""Which tables a statement changes, other than those that its triggers and foreign keys change.

The result contains every table that the statement changes itself; it may contain others.

Grammar: MySQL's reference manual, "Data Manipulation Statements".
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.tables import Statement, parse, past, table_name

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
    return tokens[past(tokens, 1, "IF", "NOT", "EXISTS") :]


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
    name, _ = table_name(tokens, at)
    return name.within(database) if name is not None and (name.database or database) else None


def _before(tokens: Statement, keyword: str) -> Statement:
    end = next((i for i, t in enumerate(tokens) if t.keyword == keyword), len(tokens))
    return tokens[:end]


def _after(tokens: Statement, keyword: str) -> Statement:
    start = next((i for i, t in enumerate(tokens) if t.keyword == keyword), len(tokens))
    return tokens[start + 1 :]
