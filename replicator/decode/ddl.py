"""What an ALTER or RENAME statement of MySQL does to names, which no event and no definition tells.

Two definitions of a table, before and after, cannot tell a renamed column from one that was dropped beside one that
was added, and that of a renamed table has its new name only. The statement tells. Only names are read: types come
from the definitions. What is not understood is passed over, so that a statement of a newer server does no harm.

Grammar: MySQL's reference manual, "ALTER TABLE Statement", "RENAME TABLE Statement", "Comments".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from replicator.model.lineage import ColumnMoves
from replicator.model.table import TableId

_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ | /\*(?![!M]).*?\*/ | \#[^\n]* | --(?=[\s]|$)[^\n]* | /\*M?!\d* | \*/ )
    | (?P<backtick> `(?:[^`]|``)*` )
    | (?P<string> '(?:[^'\\]|''|\\.)*' | "(?:[^"\\]|""|\\.)*" )
    | (?P<word> [^\s`'"(),.;=#/*]+ )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NO_COLUMNS: Final = frozenset(
    {
        *("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "FOREIGN"),
        *("CHECK", "PARTITION", "PERIOD", "SYSTEM"),
    }
)
"""What may follow ADD or DROP where no column is meant."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a mark; `name` is what it means as a name, None where it can be none. Keywords are never quoted."""

    keyword: str
    name: str | None


@dataclass(frozen=True, slots=True)
class _Name:
    """A table as a statement calls it; without a database it is in the current one."""

    database: str | None
    table: str

    def means(self, table: TableId) -> bool:
        """Whether it may be `table`; on some servers letter case does not count."""
        same = self.table.casefold() == table.name.casefold()
        return same and (self.database is None or self.database.casefold() == table.database.casefold())

    def may_be(self, other: "_Name") -> bool:
        """Whether both may be one table."""
        one_database = self.database is None or other.database is None
        return self.table.casefold() == other.table.casefold() and (
            one_database or str(self.database).casefold() == str(other.database).casefold()
        )


def column_moves(ddl: str | None, table: TableId) -> ColumnMoves | None:
    """What `ddl` does to the names of the columns of `table`; None where it says nothing of that table.

    A table that the same statement also renames is meant by either name.
    """
    found: ColumnMoves | None = None
    for statement in _statements(ddl):
        if (specs := _alter(statement, table)) is None:
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


def renamed_from(ddl: str | None, table: TableId) -> TableId | None:
    """What `table` was called before `ddl`, which gave it its name; None where it did not.

    One statement may rename several tables, one after the other, and one table more than once.
    """
    origins: list[tuple[_Name, _Name]] = []
    for statement in _statements(ddl):
        for old, new in _table_renames(statement):
            known = next((pair for pair in origins if pair[0].may_be(old)), None)
            if known is not None:
                origins.remove(known)
            origins.append((new, old if known is None else known[1]))
    origin = next((old for new, old in reversed(origins) if new.means(table)), None)
    if origin is None:
        return None
    found = TableId(origin.database or table.database, origin.table)
    return None if found == table else found


def _table_renames(tokens: Sequence[_Token]) -> Iterator[tuple[_Name, _Name]]:
    """(old, new) of each table that a statement renames."""
    if _keywords(tokens, 0, "RENAME") and len(tokens) > 1 and tokens[1].keyword in ("TABLE", "TABLES"):
        for pair in _split(tokens[2:]):
            old, at = _table_name(pair, 2 if _keywords(pair, 0, "IF", "EXISTS") else 0)
            new, _ = _table_name(pair, at + 1) if _keywords(pair, at, "TO") else (None, at)
            if old is not None and new is not None:
                yield old, new
    elif (found := _altered(tokens)) is not None:
        old, specs = found
        for new in filter(None, map(_new_name, specs)):
            yield old, new


def _statements(ddl: str | None) -> list[list[_Token]]:
    statements: list[list[_Token]] = [[]]
    for token in _tokens(ddl or ""):
        if token.keyword == ";":
            statements.append([])
        else:
            statements[-1].append(token)
    return [s for s in statements if s]


def _tokens(text: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        piece = match[0]
        match match.lastgroup:
            case "space":
                continue
            case "backtick":
                tokens.append(_Token("", piece[1:-1].replace("``", "`")))
            case "string":
                # With ANSI_QUOTES double quotes make a name; a string stands where no name can.
                double = piece[0] == '"'
                tokens.append(_Token("", piece[1:-1].replace('""', '"') if double else None))
            case "word":
                tokens.append(_Token(piece.upper(), piece))
            case _:
                tokens.append(_Token(piece, None))
    return tokens


def _alter(tokens: Sequence[_Token], table: TableId) -> list[Sequence[_Token]] | None:
    """The specifications of an ALTER TABLE of `table`; None for any other statement."""
    found = _altered(tokens)
    if found is None:
        return None
    name, specs = found
    names = [name, *filter(None, map(_new_name, specs))]
    return specs if any(n.means(table) for n in names) else None


def _altered(tokens: Sequence[_Token]) -> tuple[_Name, list[Sequence[_Token]]] | None:
    """The table and the specifications of an ALTER TABLE; None for any other statement."""
    if tokens[0].keyword != "ALTER":
        return None
    at = next((i for i, t in enumerate(tokens[:5]) if t.keyword == "TABLE"), None)
    if at is None:
        return None
    at += 1
    if _keywords(tokens, at, "IF", "EXISTS"):
        at += 2
    name, at = _table_name(tokens, at)
    return None if name is None else (name, _split(tokens[at:]))


def _new_name(spec: Sequence[_Token]) -> _Name | None:
    """What an ALTER's specification, `RENAME [TO | AS] name`, calls the table; None where it is another one."""
    if not _keywords(spec, 0, "RENAME") or (len(spec) > 2 and spec[1].keyword in ("COLUMN", "INDEX", "KEY")):
        return None
    at = 2 if len(spec) > 1 and spec[1].keyword in ("TO", "AS", "=") else 1
    return _table_name(spec, at)[0]


def _table_name(tokens: Sequence[_Token], at: int) -> tuple[_Name | None, int]:
    if at >= len(tokens) or (first := tokens[at].name) is None:
        return None, at
    if at + 2 < len(tokens) and tokens[at + 1].keyword == "." and (second := tokens[at + 2].name) is not None:
        return _Name(first, second), at + 3
    return _Name(None, first), at + 1


def _split(tokens: Sequence[_Token]) -> list[Sequence[_Token]]:
    """Specifications, at the commas that are in no parentheses."""
    specs: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.keyword, 0)
        if token.keyword == "," and depth == 0:
            specs.append([])
        else:
            specs[-1].append(token)
    return [s for s in specs if s]


def _column_change(spec: Sequence[_Token]) -> tuple[str, str | None] | None:
    """(old name, new name) of a rename, (name, None) of a drop; None for anything else."""
    match spec[0].keyword:
        case "DROP":
            at = 1
            if _keywords(spec, 1, "COLUMN"):
                at = 2
            elif len(spec) > 1 and spec[1].keyword in _NO_COLUMNS:
                return None
            if _keywords(spec, at, "IF", "EXISTS"):
                at += 2
            name = spec[at].name if at < len(spec) else None
            return None if name is None else (name, None)
        case "CHANGE":
            at = 2 if _keywords(spec, 1, "COLUMN") else 1
            if _keywords(spec, at, "IF", "EXISTS"):
                at += 2
            return _pair(spec, at, at + 1)
        case "RENAME" if _keywords(spec, 1, "COLUMN"):
            return _pair(spec, 2, 4)
        case _:
            return None


def _pair(spec: Sequence[_Token], old: int, new: int) -> tuple[str, str] | None:
    if new >= len(spec) or (before := spec[old].name) is None or (after := spec[new].name) is None:
        return None
    return before, after


def _keywords(tokens: Sequence[_Token], at: int, *words: str) -> bool:
    return [t.keyword for t in tokens[at : at + len(words)]] == list(words)
