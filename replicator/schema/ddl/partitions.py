"""Extract from MySQL's statements what they do to the partitions of a table, as far as these are ranges of a column.

Grammar: MySQL's reference manual, "CREATE TABLE Statement", "ALTER TABLE Partition Operations".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.effects import Bound, Partition, PartitionChange, PartitionLayout
from replicator.schema.ddl.tables import (
    Statement,
    alter_specs,
    altered_table,
    created_table,
    has_keywords,
    split_at_commas,
)
from replicator.schema.ddl.tokens import Token

_Tokens = Sequence[Token]
FORGET: Final = PartitionChange("define")
_KEEP_LAYOUT: Final = frozenset(
    {"REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REPAIR", "DISCARD", "COALESCE", "EXCHANGE"}
)
"""Words before PARTITION in statements after which each partition has the same definition."""
_MODIFIERS: Final = frozenset({"ALGORITHM", "LOCK"})
"""First words of what may stand beside an operation on partitions. Nothing else may."""


def partition_change(statements: Iterable[Statement], table: TableId) -> PartitionChange | None:
    """Return what the first statement about the partitions of `table` does to them; None if there is none.

    If it also renames the table, `table` may be either name.
    """
    return next((change for s in statements if (change := _change(s, table)) is not None), None)


def partition_statements(
    statements: Iterable[Statement], database: str
) -> Iterator[tuple[TableId, PartitionChange]]:
    """Yield what ALTER TABLE does to the partitions of which table; `database` is the current one."""
    for statement in statements:
        if (altered := altered_table(statement)) is not None:
            table = altered[0].within(database)
            if (change := _change(statement, table)) is not None:
                yield table, change


def _change(statement: Statement, table: TableId) -> PartitionChange | None:
    if (specs := alter_specs(statement, table)) is not None:
        return _alteration([spec for spec in specs if spec[0].keyword not in _MODIFIERS])
    created = created_table(statement)
    if created is None or not created[0].means(table):
        return None
    if_missing = any(has_keywords(statement, at, "IF", "NOT", "EXISTS") for at in (2, 3))
    return PartitionChange("define", layout=_layout(statement), if_missing=if_missing)


def _alteration(specs: Sequence[_Tokens]) -> PartitionChange | None:
    words = {token.keyword for spec in specs for token in spec}
    if "PARTITIONING" in words or (specs and has_keywords(specs[0], 0, "IMPORT", "TABLESPACE")):
        return FORGET  # Nobody checks that imported rows belong to their partitions.
    if any(_clause(spec) is not None for spec in specs):
        return PartitionChange("define", layout=next(filter(None, map(_layout, specs)), None))
    if not any(has_keywords(spec, 1, "PARTITION") for spec in specs):
        return None
    verb, rest = specs[0][0].keyword, [specs[0][2:], *specs[1:]]
    # Of EXCHANGE … WITHOUT VALIDATION, nobody checks that the rows belong to the partition.
    if verb in _KEEP_LAYOUT and "WITHOUT" not in words:
        return None
    try:
        return _operation(verb, rest)
    except ValueError:
        return FORGET


def _operation(verb: str, rest: Sequence[_Tokens]) -> PartitionChange:
    """Return the effect of an operation, whose names of partitions are separated by commas as specifications are.

    Raises:
        ValueError: it is not understood.
    """
    match verb:
        case "DROP":
            return PartitionChange("replace", _names(rest))
        case "TRUNCATE":
            is_whole = [t.keyword for t in rest[0]] == ["ALL"]
            return PartitionChange("truncate", () if is_whole else _names(rest))
        case "ADD":
            return PartitionChange("replace", new=_partitions(rest[0]))
        case "REORGANIZE" if has_keywords(rest[-1], 1, "INTO"):
            names = _names([*rest[:-1], rest[-1][:1]])
            return PartitionChange("replace", names, _partitions(rest[-1][2:]))
    raise ValueError(verb)


def _names(parts: Sequence[_Tokens]) -> tuple[str, ...]:
    found = [part[0].name for part in parts if len(part) == 1]
    names = tuple(name.casefold() for name in found if name is not None)
    if not names or len(names) < len(parts):
        raise ValueError("no names")
    return names


def _clause(tokens: _Tokens) -> _Tokens | None:
    """Return what follows PARTITION BY; None if a statement does not have it."""
    at = next((at for at in range(len(tokens)) if has_keywords(tokens, at, "PARTITION", "BY")), None)
    return None if at is None else tokens[at + 2 :]


def _layout(tokens: _Tokens) -> PartitionLayout | None:
    """Return the layout that a statement defines; None for other partitions than ranges of a column."""
    clause = _clause(tokens)
    at = 2 if clause is not None and has_keywords(clause, 1, "COLUMNS") else 1
    if clause is None or not has_keywords(clause, 0, "RANGE") or not has_keywords(clause, at, "("):
        return None
    # Behind the column: PARTITIONS and a number, or how each partition is divided.
    opening = next((i for i in range(at + 1, len(clause)) if has_keywords(clause, i, "(", "PARTITION")), at)
    try:
        (column,) = _names(split_at_commas(clause[at + 1 :]))
        return PartitionLayout(column, _partitions(clause[opening:])).checked()
    except ValueError:
        return None


def _partitions(tokens: _Tokens) -> tuple[Partition, ...]:
    """Return the partitions that are defined in parentheses. Raises ValueError if one is not understood."""
    if not has_keywords(tokens, 0, "(", "PARTITION"):
        raise ValueError("no partitions")
    return tuple(map(_partition, split_at_commas(tokens[1:])))


def _partition(element: _Tokens) -> Partition:
    name = (
        element[1].name if len(element) > 1 and has_keywords(element, 2, "VALUES", "LESS", "THAN") else None
    )
    if name is None:
        raise ValueError("no range")
    return name.casefold(), _bound(element[5:])


def _bound(tokens: _Tokens) -> Bound:
    """Return a constant. Expressions would have to be computed as MySQL does. Raises ValueError for these."""
    values = split_at_commas(tokens[1:]) if has_keywords(tokens, 0, "(") else [tokens[:1]]
    item = values[0] if len(values) == 1 else ()
    is_negative = has_keywords(item, 0, "-")
    if len(item) != 1 + is_negative:
        raise ValueError("no constant")
    word, text = item[-1].keyword, item[-1].text
    if not is_negative and (word == "MAXVALUE" or text is not None):
        return text
    if not (word.isascii() and word.isdecimal() and len(word) <= 20):
        raise ValueError("no constant")
    return -int(word) if is_negative else int(word)
