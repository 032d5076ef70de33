"""Extract from MySQL's statements what they do to the partitions of a table.

Grammar: MySQL's reference manual, "CREATE TABLE Statement", "ALTER TABLE Partition Operations".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.tables import (
    Statement,
    alter_specs,
    altered_table,
    created_table,
    has_keywords,
    named_tables,
    split_at_commas,
)
from replicator.schema.ddl.tokens import Token
from replicator.schema.history.partitions import (
    MAXVALUE,
    Bound,
    Limit,
    Partition,
    PartitionChange,
    PartitionKind,
    PartitionLayout,
    Value,
)

_Tokens = Sequence[Token]
FORGET: Final = PartitionChange("forget")
_KEEP_ROWS: Final = frozenset({"REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REPAIR", "DISCARD", "COALESCE"})
"""Words before PARTITION in statements after which each partition has the same definition."""
_MODIFIERS: Final = frozenset({"ALGORITHM", "LOCK"})
"""First words of what may stand before an operation on partitions. Nothing else may."""
_KINDS: Final[dict[str, PartitionKind]] = {"RANGE": "range", "LIST": "list"}


def partition_change(statements: Iterable[Statement], table: TableId) -> PartitionChange | None:
    """Return what statements do to the partitions of `table`; None if they do nothing to them.

    If a statement also renames the table, `table` may be either name.
    """
    found = [change for s in statements if (change := _change(s, table)) is not None]
    if len(found) > 1:
        return FORGET
    return found[0] if found else None


def partition_statements(
    statements: Sequence[Statement], database: str
) -> Iterator[tuple[TableId, PartitionChange]]:
    """Yield what ALTER TABLE does to the partitions of which table; `database` is the current one."""
    of_table: dict[str, list[Statement]] = defaultdict(list)
    altered: dict[TableId, None] = {}
    for statement in statements:
        names = [TableId(n.database or database, n.table) for n in named_tables(statement)]
        for name in {str(name).casefold() for name in names}:
            of_table[name].append(statement)
        if altered_table(statement) is not None:
            altered[names[0]] = None
    for table in altered:
        if (change := partition_change(of_table[str(table).casefold()], table)) is not None:
            yield table, change


def _change(statement: Statement, table: TableId) -> PartitionChange | None:
    if (specs := alter_specs(statement, table)) is not None:
        return _alteration(specs)
    created = created_table(statement)
    if created is None or not created[0].means(table):
        return None
    if created[1] is not None:
        return FORGET
    clause = _clause(statement)
    return PartitionChange(
        "define",
        layout=None if clause is None else _layout(clause),
        if_missing=any(has_keywords(statement, at, "IF", "NOT", "EXISTS") for at in (2, 3)),
    )


def _alteration(specs: Sequence[_Tokens]) -> PartitionChange | None:
    first = next((at for at, spec in enumerate(specs) if spec[0].keyword not in _MODIFIERS), len(specs) - 1)
    specs = specs[max(first, 0) :]
    for spec in specs:
        if (clause := _clause(spec)) is not None:
            return PartitionChange("define", layout=_layout(clause))
    at_top = [t.keyword for spec in specs for t in _top_level(spec)]
    if "PARTITIONING" in at_top:
        return PartitionChange("define")
    if specs and has_keywords(specs[0], 0, "IMPORT", "TABLESPACE"):
        return FORGET  # Nobody checks that the rows belong to their partitions.
    if not specs or not has_keywords(specs[0], 1, "PARTITION"):
        return FORGET if any(has_keywords(spec, 1, "PARTITION") for spec in specs) else None
    return _operation(specs[0][0].keyword, specs)


def _operation(verb: str, specs: Sequence[_Tokens]) -> PartitionChange | None:
    """Return the effect of an operation, whose names of partitions are separated by commas as specifications are."""
    rest = [specs[0][2:], *specs[1:]]
    match verb:
        case "DROP" if (names := _names(rest)) is not None:
            return PartitionChange("drop", names)
        case "TRUNCATE" if len(rest) == 1 and [t.keyword for t in rest[0]] == ["ALL"]:
            return PartitionChange("truncate")
        case "TRUNCATE" if (names := _names(rest)) is not None:
            return PartitionChange("truncate", names)
        case "ADD" if len(rest) == 1 and (new := _partitions(rest[0])) is not None:
            return PartitionChange("add", partitions=new)
        case "REORGANIZE":
            return _reorganization(rest)
        case "EXCHANGE" if not any(t.keyword == "WITHOUT" for part in rest for t in part):
            return None
        case _ if verb in _KEEP_ROWS:
            return None
    # Of EXCHANGE … WITHOUT VALIDATION and IMPORT, nobody checks that the rows belong to the partition.
    return FORGET


def _reorganization(rest: Sequence[_Tokens]) -> PartitionChange:
    last = rest[-1]
    if len(last) < 2 or last[1].keyword != "INTO":
        return FORGET
    names, new = _names([*rest[:-1], last[:1]]), _partitions(last[2:])
    if names is None or new is None:
        return FORGET
    return PartitionChange("reorganize", names, new)


def _names(parts: Sequence[_Tokens]) -> tuple[str, ...] | None:
    found = [part[0].name for part in parts if len(part) == 1]
    if len(found) < len(parts):
        return None
    names = tuple(name.casefold() for name in found if name is not None)
    return names if len(names) == len(parts) else None


def _top_level(tokens: _Tokens) -> Iterator[Token]:
    """Yield the tokens outside parentheses."""
    depth = 0
    for token in tokens:
        if token.keyword == ")":
            depth -= 1
        if depth == 0:
            yield token
        if token.keyword == "(":
            depth += 1


def _clause(tokens: _Tokens) -> _Tokens | None:
    """Return what follows PARTITION BY outside parentheses; None if a statement does not have it."""
    depth = 0
    for at, token in enumerate(tokens):
        if token.keyword in ("(", ")"):
            depth += 1 if token.keyword == "(" else -1
        if depth == 0 and has_keywords(tokens, at, "PARTITION", "BY"):
            return tokens[at + 2 :]
    return None


def _layout(clause: _Tokens) -> PartitionLayout | None:
    """Return the layout after PARTITION BY; None for a function, a hash or a key."""
    kind = _KINDS.get(clause[0].keyword) if clause else None
    if kind is None:
        return None
    at = 2 if has_keywords(clause, 1, "COLUMNS") else 1
    columns = _names(_group(clause, at)) if has_keywords(clause, at, "(") else None
    # Behind the columns: PARTITIONS and a number, or how each partition is divided.
    opening = next(
        (i for i in range(at + 1, len(clause)) if has_keywords(clause, i, "(", "PARTITION")), len(clause)
    )
    partitions = _partitions(clause[opening:])
    if columns is None or partitions is None or (at == 1 and len(columns) > 1):
        return None
    return PartitionLayout(kind, columns, partitions).checked()


def _group(tokens: _Tokens, opening: int) -> list[_Tokens]:
    """Return the elements in the parentheses that open at an index."""
    return split_at_commas(tokens[opening + 1 :])


def _partitions(tokens: _Tokens) -> tuple[Partition, ...] | None:
    """Return the partitions that are defined in parentheses; None if one is not understood."""
    if not has_keywords(tokens, 0, "(", "PARTITION"):
        return None
    found = [_partition(element) for element in _group(tokens, 0)]
    known = tuple(p for p in found if p is not None)
    return known if len(known) == len(found) else None


def _partition(element: _Tokens) -> Partition | None:
    if not has_keywords(element, 0, "PARTITION") or len(element) < 5 or (name := element[1].name) is None:
        return None
    if has_keywords(element, 2, "VALUES", "LESS", "THAN"):
        below = _bound(element[5:])
        return None if below is None else Partition(name.casefold(), below=below)
    if has_keywords(element, 2, "VALUES", "IN", "("):
        rows = [_row(item) for item in _group(element, 4)]
        values = tuple(row for row in rows if row is not None)
        return Partition(name.casefold(), values=values) if len(values) == len(rows) else None
    return None


def _bound(tokens: _Tokens) -> Bound | None:
    if has_keywords(tokens, 0, "MAXVALUE"):
        return (MAXVALUE,)
    if not has_keywords(tokens, 0, "("):
        return None
    found: list[Value | Limit] = []
    for item in _group(tokens, 0):
        if [t.keyword for t in item] == ["MAXVALUE"]:
            found.append(MAXVALUE)
        elif (value := _value(item)) is None or value[0] is None:
            return None
        else:
            found.append(value[0])
    return tuple(found)


def _row(item: _Tokens) -> tuple[Value, ...] | None:
    """Return a value of VALUES IN: one, or one for each column in parentheses."""
    parts = _group(item, 0) if has_keywords(item, 0, "(") else [item]
    found = [_value(part) for part in parts]
    values = tuple(value[0] for value in found if value is not None)
    return values if len(values) == len(found) else None


def _value(item: _Tokens) -> tuple[Value] | None:
    """Return a constant; None for anything else. Expressions would have to be computed as MySQL does."""
    sign = 1
    if len(item) == 2 and item[0].keyword in ("-", "+"):
        sign, item = -1 if item[0].keyword == "-" else 1, item[1:]
    elif len(item) == 1 and item[0].keyword == "NULL":
        return (None,)
    elif len(item) == 1 and item[0].text is not None:
        return (item[0].text,)
    word = item[0].keyword if len(item) == 1 else ""
    return (sign * int(word),) if word.isascii() and word.isdecimal() and len(word) <= 20 else None
