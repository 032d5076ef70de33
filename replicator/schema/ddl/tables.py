"""Extract renames, drops and computed columns from MySQL's ALTER, RENAME and CREATE statements.

Events and table definitions lack these facts: two consecutive definitions do not distinguish a renamed column from a
dropped and an added one, the definition of a renamed table has only its new name, and no definition shows whether a
column is computed. Types come from the definitions. Unknown syntax is skipped, so that a statement of a newer server
does no harm.

The parser is written by hand because sqlglot (30.30, dialect mysql) does not read these statements: RENAME TABLE and
ALTER ONLINE TABLE become an opaque command, ALTER TABLE ... RENAME AS raises, and `/*!50100 ... */` is dropped.

Grammar: MySQL's reference manual, "ALTER TABLE Statement", "RENAME TABLE Statement", "CREATE TABLE Statement".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from replicator.model.table import TableId
from replicator.schema.ddl.effects import ColumnMoves
from replicator.schema.ddl.tokens import Token, tokenize

Statement = Sequence[Token]
"""The tokens of one statement; never empty."""

_NO_COLUMNS: Final = frozenset(
    {
        *("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "FOREIGN"),
        *("CHECK", "PARTITION", "PERIOD", "SYSTEM"),
    }
)
"""Keywords after ADD or DROP, or at the start of an element of CREATE TABLE, that introduce something but a column."""


TableEffect = Literal["define", "change", "drop"]
"""What a statement does to a table: it defines it, changes or needs its definition, or drops it."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table name in a statement; without a database, the table is in the current one."""

    database: str | None
    table: str

    def within(self, database: str) -> TableId:
        """Return the table if `database` is the current one."""
        return TableId(self.database or database, self.table)

    def means(self, table: TableId) -> bool:
        """Return whether it may identify `table`; letter case is ignored, as on some servers."""
        own = self.within(table.database)
        return (own.database.casefold(), own.name.casefold()) == (
            table.database.casefold(),
            table.name.casefold(),
        )


def parse(ddl: str | None) -> list[Statement]:
    """Split a DDL text into statements; None has no statements."""
    statements: list[list[Token]] = [[]]
    for token in tokenize(ddl or ""):
        if token.keyword == ";":
            statements.append([])
        else:
            statements[-1].append(token)
    return [s for s in statements if s]


def column_moves(statements: Iterable[Statement], table: TableId) -> ColumnMoves | None:
    """Return the effect of statements on the column names of `table`; None if they do not alter the table.

    If the same statement also renames the table, `table` may be either name.
    """
    found: ColumnMoves | None = None
    for statement in statements:
        if (specs := alter_specs(statement, table)) is None:
            continue
        renamed: list[tuple[str, str]] = []
        dropped: list[str] = []
        for spec in specs:
            match _column_change(spec):
                case (old, None):
                    dropped.append(old)
                case (old, new) if new is not None:
                    renamed.append((old, new))
        found = ColumnMoves(tuple(renamed), tuple(dropped))
    return found


def computed_columns(statements: Iterable[Statement]) -> frozenset[str]:
    """Return the casefolded names of the columns that statements define with an expression.

    The expression is their value, as in `AS (a + b)`, or their default, as in `DEFAULT (UUID())`.
    """
    definitions = (d for statement in statements for d in column_definitions(statement))
    return frozenset(
        name.casefold() for first, *rest in definitions if (name := first.name) and _computes(rest)
    )


def _computes(definition: Sequence[Token]) -> bool:
    return any(
        token.keyword in ("AS", "DEFAULT") and following.keyword == "("
        for token, following in pairwise(definition)
    )


def column_definitions(statement: Statement) -> Iterator[Sequence[Token]]:
    """Yield the column definitions of an ALTER or CREATE TABLE, each beginning with the column's name."""
    elements: list[Sequence[Token]] = []
    if (found := altered_table(statement)) is not None:
        _, specs = found
        for spec in specs:
            elements += defined_elements(spec)
    elif statement[0].keyword == "CREATE" and any(t.keyword == "TABLE" for t in statement[:5]):
        elements = table_elements(statement)
    yield from (e for e in elements if is_column(e))


def is_column(element: Sequence[Token]) -> bool:
    """Return whether an element of a table definition is a column."""
    return element[0].keyword not in _NO_COLUMNS


def table_elements(statement: Statement) -> list[Sequence[Token]]:
    """Return the elements in the parentheses of a CREATE TABLE: columns, keys and constraints."""
    opening = next((i for i, t in enumerate(statement) if t.keyword == "("), len(statement))
    return split_at_commas(statement[opening + 1 :])


def defined_elements(spec: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the elements that a specification of an ALTER TABLE defines, each beginning with its name."""
    if spec[0].keyword not in ("ADD", "CHANGE", "MODIFY"):
        return []
    at = past(spec, past(spec, 1, "COLUMN"), "IF", "NOT", "EXISTS")
    at = past(spec, at, "IF", "EXISTS")
    if spec[0].keyword == "CHANGE":
        at += 1
    if has_keywords(spec, at, "("):
        return split_at_commas(spec[at + 1 :])
    return [spec[at:]] if at < len(spec) else []


def renamed_tables(statements: Iterable[Statement], database: str) -> list[tuple[TableId, TableId]]:
    """Return (old name, new name) of each renamed table; `database` is the current one."""
    return [
        (old.within(database), new.within(database))
        for statement in statements
        for old, new in _table_renames(statement)
    ]


def rename_origins(statements: Iterable[Statement], database: str) -> dict[str, TableId]:
    """Return the casefolded name of each table that statements rename → the name that it had before them.

    One statement may rename several tables in turn, and the same table more than once. `database` is the current one.
    """
    origins: dict[str, TableId] = {}
    for old, new in renamed_tables(statements, database):
        origins[str(new).casefold()] = origins.pop(str(old).casefold(), old)
    return origins


def dropped_database(statements: Sequence[Statement]) -> str | None:
    """Return the database that a record's statement drops; None if it drops none.

    Only the first statement counts: those after a semicolon are in the body of a routine.
    """
    first = statements[0] if statements else ()
    if not (has_keywords(first, 0, "DROP", "DATABASE") or has_keywords(first, 0, "DROP", "SCHEMA")):
        return None
    at = past(first, 2, "IF", "EXISTS")
    return first[at].name if at < len(first) else None


def table_effects(statements: Iterable[Statement], database: str) -> Iterator[tuple[TableEffect, TableId]]:
    """Yield which tables statements define, change and drop, in order; `database` is the current one.

    Temporary tables are left out.
    """
    for statement in statements:
        for effect, name in _effects(statement):
            if name is not None:
                yield effect, name.within(database)


def named_tables(statement: Statement) -> Iterator[TableName]:
    """Yield the tables that a statement defines, changes or drops; of an ALTER TABLE, the altered one is first."""
    yield from (name for _, name in _effects(statement) if name is not None)


def _effects(statement: Statement) -> Iterator[tuple[TableEffect, TableName | None]]:
    renames = list(_table_renames(statement))
    for old, new in renames:
        yield "change", old
        yield "define", new
    if (altered := altered_table(statement)) is not None:
        if not renames:
            yield "change", altered[0]
    elif statement[0].keyword in ("CREATE", "DROP") and not has_keywords(statement, 1, "TEMPORARY"):
        yield from _created_or_dropped(statement)


def _created_or_dropped(statement: Statement) -> Iterator[tuple[TableEffect, TableName | None]]:
    if (at := _after(statement, 2, "TABLE", "TABLES")) is not None:
        if statement[0].keyword == "CREATE":
            yield from _created(statement, at)
        else:
            names = statement[past(statement, at, "IF", "EXISTS") :]
            yield from (("drop", table_name(part, 0)[0]) for part in split_at_commas(names))
    elif (at := _after(statement, 3, "INDEX")) is not None and (
        on := _after(statement, at + 4, "ON")
    ) is not None:
        yield "change", table_name(statement, on)[0]


def _created(statement: Statement, at: int) -> Iterator[tuple[TableEffect, TableName | None]]:
    name, like = _created_names(statement, at)
    if like is not None:
        # It needs the definition of the other table.
        yield "change", like
    yield "define", name


def _created_names(statement: Statement, at: int) -> tuple[TableName | None, TableName | None]:
    """Return the name at index `at` of a CREATE TABLE, and that of the table like which it is created."""
    name, at = table_name(statement, past(statement, at, "IF", "NOT", "EXISTS"))
    at = past(statement, at, "(")
    return name, table_name(statement, at + 1)[0] if has_keywords(statement, at, "LIKE") else None


def created_table(statement: Statement) -> tuple[TableName, TableName | None] | None:
    """Return the table that a CREATE TABLE creates, and the one like which it is created; None for other statements."""
    if statement[0].keyword != "CREATE" or (at := _after(statement, 2, "TABLE")) is None:
        return None
    name, like = _created_names(statement, at)
    return None if name is None else (name, like)


def _after(tokens: Sequence[Token], last: int, *words: str) -> int | None:
    """Return the index after the first of some keywords, up to index `last`; None if none is there."""
    return next((i + 1 for i, t in enumerate(tokens[: last + 1]) if t.keyword in words), None)


def _table_renames(tokens: Sequence[Token]) -> Iterator[tuple[TableName, TableName]]:
    """Yield (old, new) for each table that a statement renames."""
    if has_keywords(tokens, 0, "RENAME") and len(tokens) > 1 and tokens[1].keyword in ("TABLE", "TABLES"):
        for pair in split_at_commas(tokens[2:]):
            old, at = table_name(pair, 2 if has_keywords(pair, 0, "IF", "EXISTS") else 0)
            new, _ = table_name(pair, at + 1) if has_keywords(pair, at, "TO") else (None, at)
            if old is not None and new is not None:
                yield old, new
    elif (found := altered_table(tokens)) is not None:
        old, specs = found
        for new in filter(None, map(_new_name, specs)):
            yield old, new


def alter_specs(tokens: Sequence[Token], table: TableId) -> list[Sequence[Token]] | None:
    """Return the specifications of an ALTER TABLE of `table`; None for any other statement."""
    found = altered_table(tokens)
    if found is None:
        return None
    name, specs = found
    names = [name, *filter(None, map(_new_name, specs))]
    return specs if any(n.means(table) for n in names) else None


def altered_table(tokens: Sequence[Token]) -> tuple[TableName, list[Sequence[Token]]] | None:
    """Return the table and the specifications of an ALTER TABLE; None for any other statement."""
    if tokens[0].keyword != "ALTER":
        return None
    at = next((i for i, t in enumerate(tokens[:5]) if t.keyword == "TABLE"), None)
    if at is None:
        return None
    name, at = table_name(tokens, past(tokens, at + 1, "IF", "EXISTS"))
    return None if name is None else (name, split_at_commas(tokens[at:]))


def _new_name(spec: Sequence[Token]) -> TableName | None:
    """Return the new table name in a specification `RENAME [TO | AS] name` of an ALTER TABLE; None for any other."""
    if not has_keywords(spec, 0, "RENAME") or (
        len(spec) > 2 and spec[1].keyword in ("COLUMN", "INDEX", "KEY")
    ):
        return None
    at = 2 if len(spec) > 1 and spec[1].keyword in ("TO", "AS", "=") else 1
    return table_name(spec, at)[0]


def table_name(tokens: Sequence[Token], at: int) -> tuple[TableName | None, int]:
    """Return the table name that begins at index `at`, None if there is none, and the index after it."""
    if at >= len(tokens) or (first := tokens[at].name) is None:
        return None, at
    if at + 2 < len(tokens) and tokens[at + 1].keyword == "." and (second := tokens[at + 2].name) is not None:
        return TableName(first, second), at + 3
    return TableName(None, first), at + 1


def split_at_commas(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Split tokens at top-level commas; stop at an unmatched closing parenthesis."""
    specs: list[list[Token]] = [[]]
    for token, depth in with_depth(tokens):
        if depth < 0:
            break
        if token.keyword == "," and depth == 0:
            specs.append([])
        else:
            specs[-1].append(token)
    return [s for s in specs if s]


def _column_change(spec: Sequence[Token]) -> tuple[str, str | None] | None:
    """Return (old name, new name) of a rename, (name, None) of a drop, and None for anything else."""
    match spec[0].keyword:
        case "DROP":
            if len(spec) > 1 and spec[1].keyword in _NO_COLUMNS:
                return None
            at = past(spec, past(spec, 1, "COLUMN"), "IF", "EXISTS")
            name = spec[at].name if at < len(spec) else None
            return None if name is None else (name, None)
        case "CHANGE":
            at = past(spec, past(spec, 1, "COLUMN"), "IF", "EXISTS")
            return _pair(spec, at, at + 1)
        case "RENAME" if has_keywords(spec, 1, "COLUMN"):
            return _pair(spec, 2, 4)
        case _:
            return None


def _pair(spec: Sequence[Token], old: int, new: int) -> tuple[str, str] | None:
    if new >= len(spec) or (before := spec[old].name) is None or (after := spec[new].name) is None:
        return None
    return before, after


def with_depth(tokens: Iterable[Token]) -> Iterator[tuple[Token, int]]:
    """Yield each token, and how many parentheses are open after it; fewer than none behind an unmatched one."""
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.keyword, 0)
        yield token, depth


def past(tokens: Sequence[Token], at: int, *words: str) -> int:
    """Return the index behind these keywords if they are at index `at`; otherwise `at`."""
    return at + len(words) if has_keywords(tokens, at, *words) else at


def has_keywords(tokens: Sequence[Token], at: int, *words: str) -> bool:
    """Return whether the tokens from index `at` on are these keywords."""
    return [t.keyword for t in tokens[at : at + len(words)]] == list(words)
