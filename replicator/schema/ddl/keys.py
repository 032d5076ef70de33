"""Extract from MySQL's statements what they do to the keys of a table.

Foreign keys are left out: the index that the server may create for one is not unique.

Grammar: MySQL's reference manual, "ALTER TABLE Statement", "CREATE INDEX Statement", "CREATE TABLE Statement".
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.effects import PRIMARY, KeyChange, KeyDefinition
from replicator.schema.ddl.tables import (
    Statement,
    TableName,
    alter_specs,
    created_table,
    defined_elements,
    has_keywords,
    is_column,
    past,
    split_at_commas,
    table_elements,
    table_name,
    with_depth,
)
from replicator.schema.ddl.tokens import Token

_INDEX: Final = frozenset({"INDEX", "KEY"})
_NOT_UNIQUE: Final = frozenset({*_INDEX, "FULLTEXT", "SPATIAL", "VECTOR"})
_INDEX_STATEMENT: Final = frozenset({"CREATE", "DROP", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"})
"""Words before INDEX in a statement that creates or drops one."""
_END_OF_COLUMN: Final = frozenset({"AFTER", "FIRST", "REFERENCES"})
"""Words of a column definition after which a name may follow that is also a keyword."""


def key_change(statements: Iterable[Statement], table: TableId) -> KeyChange:
    """Return what the last statement of `table` does to its keys.

    If the statement also renames the table, `table` may be either name.
    """
    found = KeyChange()
    for statement in statements:
        if (specs := alter_specs(statement, table)) is not None:
            found = _alteration(specs)
        elif (created := created_table(statement)) is not None and created[0].means(table):
            like = created[1]
            if like is None:
                found = KeyChange(created=True, added=tuple(_defined_keys(table_elements(statement))))
            else:
                found = KeyChange(created=True, like=like.within(table.database))
        elif (index := _index_statement(statement)) is not None and index[0].means(table):
            found = index[1]
    return found


def index_statements(statements: Iterable[Statement], database: str) -> Iterator[tuple[TableId, KeyChange]]:
    """Yield what CREATE INDEX and DROP INDEX do to the keys of which table; `database` is the current one."""
    for statement in statements:
        if (found := _index_statement(statement)) is not None:
            name, change = found
            yield name.within(database), change


def _alteration(specs: Iterable[Sequence[Token]]) -> KeyChange:
    dropped: list[str] = []
    renamed: list[tuple[str, str]] = []
    added: list[KeyDefinition] = []
    for spec in specs:
        match spec[0].keyword:
            case "DROP":
                dropped += _dropped_key(spec)
            case "RENAME" if len(spec) > 4 and spec[1].keyword in _INDEX:
                renamed.append((_folded(spec[2]), _folded(spec[4])))
            case _:
                added += _defined_keys(defined_elements(spec))
    return KeyChange(dropped=tuple(dropped), renamed=tuple(renamed), added=tuple(added))


def _dropped_key(spec: Sequence[Token]) -> Iterator[str]:
    if has_keywords(spec, 1, "PRIMARY", "KEY"):
        yield PRIMARY
    elif len(spec) > 2 and spec[1].keyword in {*_INDEX, "CONSTRAINT"}:
        at = past(spec, 2, "IF", "EXISTS")
        yield from map(_folded, spec[at : at + 1])


def _index_statement(statement: Statement) -> tuple[TableName, KeyChange] | None:
    """Return the table and the effect of a CREATE INDEX or DROP INDEX; None for other statements.

    Debezium 3.6 omits the word CREATE in the statement of a unique index.
    """
    at = next((i for i, t in enumerate(statement[:3]) if t.keyword == "INDEX"), None)
    if not at or any(t.keyword not in _INDEX_STATEMENT for t in statement[:at]):
        return None
    on = next((i for i in range(at + 2, min(at + 5, len(statement))) if statement[i].keyword == "ON"), None)
    table, opening = (None, 0) if on is None else table_name(statement, on + 1)
    if table is None:
        return None
    index = _folded(statement[at + 1])
    if statement[0].keyword == "DROP":
        return table, KeyChange(dropped=(index,))
    is_unique = any(t.keyword == "UNIQUE" for t in statement[:at])
    return table, KeyChange(added=(_key(index, statement[opening:], is_unique=is_unique),))


def _defined_keys(elements: Iterable[Sequence[Token]]) -> Iterator[KeyDefinition]:
    """Yield the keys that elements of a table definition define: keys, and columns with a key."""
    for element in elements:
        if is_column(element):
            yield from _keys_of_column(element)
        elif (found := _defined_key(element)) is not None:
            yield found


def _defined_key(element: Sequence[Token]) -> KeyDefinition | None:
    """Return the key that an element of `CREATE TABLE` defines, which is no column; None for other constraints."""
    at, symbol = 0, None
    if element[0].keyword == "CONSTRAINT":
        at = 1
        if len(element) > 1 and element[1].keyword not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            at, symbol = 2, _folded(element[1])
    kind = element[at].keyword if at < len(element) else ""
    if kind == "PRIMARY":
        return _key(PRIMARY, element[at:], is_unique=True)
    if kind not in {"UNIQUE", *_NOT_UNIQUE}:
        return None
    while at < len(element) and element[at].keyword in {"UNIQUE", *_NOT_UNIQUE}:
        at += 1
    if at < len(element) and element[at].keyword not in ("(", "USING") and element[at].name is not None:
        symbol = _folded(element[at])
    return _key(symbol, element[at:], is_unique=kind == "UNIQUE")


def _key(name: str | None, tokens: Sequence[Token], *, is_unique: bool) -> KeyDefinition:
    """Return a key with the columns in the first parentheses of `tokens`."""
    opening = next((i for i, t in enumerate(tokens) if t.keyword == "("), len(tokens))
    parts = [part[0].name for part in split_at_commas(tokens[opening + 1 :])]
    columns = frozenset(part.casefold() for part in parts if part is not None)
    first = parts[0].casefold() if parts and parts[0] is not None else None
    # An expression begins with a parenthesis, which is no name.
    return KeyDefinition(name, first, columns if is_unique and None not in parts else None)


def _keys_of_column(element: Sequence[Token]) -> Iterator[KeyDefinition]:
    """Yield the keys that a column definition defines with UNIQUE, KEY, PRIMARY KEY or SERIAL."""
    if (name := element[0].name) is None:
        return
    column = name.casefold()
    for (before, _), (token, depth) in pairwise(with_depth(element)):
        word = token.keyword if depth == 0 else ""
        if word in _END_OF_COLUMN:
            return
        if word in ("UNIQUE", "SERIAL"):
            yield KeyDefinition(None, column, frozenset({column}))
        elif word == "KEY" and before.keyword != "UNIQUE":
            yield KeyDefinition(PRIMARY, column, frozenset({column}))


def _folded(token: Token) -> str:
    return (token.name or "").casefold()
