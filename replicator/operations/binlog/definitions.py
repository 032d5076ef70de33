"""Find how tables were defined before the first file, since row events only make sense with the columns of their table.

The connector follows all statements in the files by itself. What it cannot know is the definition of a table that was
created earlier. In order of preference, it comes from a file that the operator gives, from the descriptions of row
events (`binlog_row_metadata = FULL`), and from the source, whose tables may have changed since.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from replicator.errors import BinlogError, ConfigError
from replicator.model.table import TableId
from replicator.schema.ddl.tables import parse, table_effects
from replicator.schema.ddl.tokens import split_statements, tokenize
from replicator.sources.binlog.row_metadata import Collation, create_table
from replicator.sources.binlog.scan import Scan
from replicator.sources.binlog.table_map import TableMap

_SHOWN: Final = 5

Lookup = Callable[[TableId], Sequence[str]]
"""Return the statements that create a table of the source, with its database; none if it has no such table."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Which tables of the files have to be defined before them.

    Attributes:
        described: tables whose rows precede all statements about them, with the description of the rows.
        changed: tables that a statement changes before the files describe or create them.
        altered: all tables that a statement in the files changes, creates or drops.
    """

    described: Mapping[TableId, TableMap]
    changed: frozenset[TableId]
    altered: frozenset[TableId]


def needs(scan: Scan) -> Needs:
    """Return what the files do not define themselves."""
    seen: set[TableId] = set()
    described: dict[TableId, TableMap] = {}
    changed: set[TableId] = set()
    altered: set[TableId] = set()
    for item in scan.items:
        if isinstance(item, TableMap):
            if item.table not in seen:
                described[item.table] = item
            seen.add(item.table)
            continue
        for effect in table_effects(parse(item.text), item.database):
            if effect.kind == "change" and effect.table not in seen:
                changed.add(effect.table)
            seen.add(effect.table)
            altered.add(effect.table)
    return Needs(described, frozenset(changed), frozenset(altered))


@dataclass(frozen=True, slots=True)
class Definitions:
    """The tables before the first file: statements for MySQL, and tables to be defined from their description.

    `default_database` is the database of statements that name none.
    """

    statements: tuple[str, ...] = ()
    described: tuple[TableMap, ...] = ()
    default_database: str | None = None

    def fingerprint(self) -> str:
        """Return a hash: with other definitions, the events of the same files would differ."""
        content = "\n".join([*self.statements, *map(repr, self.described), str(self.default_database)])
        return sha256(content.encode()).hexdigest()

    def sql(self, collations: Mapping[int, Collation]) -> list[str]:
        """Return the statements that define all tables. Raises BinlogError as `create_table`."""
        return [*self.statements, *(create_table(table, collations) for table in self.described)]


def from_file(path: Path, default_database: str | None) -> Definitions:
    """Return the definitions of a script; other statements than CREATE TABLE, CREATE DATABASE and USE are skipped.

    Raises:
        ConfigError: the file cannot be read, or defines no table.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}") from error
    statements = tuple(s for s in split_statements(text) if _defines(s))
    if not any("TABLE" in _keywords(s) for s in statements):
        raise ConfigError(
            f"{path} has no CREATE TABLE statement", "write it with: mysqldump --no-data --databases NAME"
        )
    return Definitions(statements, default_database=default_database)


def _defines(statement: str) -> bool:
    words = _keywords(statement)
    if words[0] == "USE":
        return True
    return words[0] == "CREATE" and words[1] in ("TABLE", "DATABASE", "SCHEMA")


def _keywords(statement: str) -> list[str]:
    found = [token.keyword for token, _ in zip(tokenize(statement), range(3), strict=False)]
    return found + [""] * (3 - len(found))


def without_file(found: Needs, included: Callable[[TableId], bool], lookup: Lookup) -> Definitions:
    """Return the definitions of the included tables that the files do not define.

    Raises:
        BinlogError: there is no definition of a table.
    """
    changed = sorted(table for table in found.changed if included(table))
    if changed:
        raise BinlogError(
            f"the files change tables that were created before them: {_listed(changed)}",
            "give their definitions as of the first file: --definitions FILE, written by mysqldump --no-data",
        )
    statements: list[str] = []
    described: list[TableMap] = []
    for table, description in sorted(found.described.items()):
        if not included(table):
            continue
        if description.has_names:
            described.append(description)
            continue
        definition = () if table in found.altered else lookup(table)
        if not definition:
            raise BinlogError(
                f"{table} was created before these files, whose rows have no column names "
                "(binlog_row_metadata is not FULL)",
                "give the definitions as of the first file: --definitions FILE, written by mysqldump --no-data",
            )
        statements += definition
    return Definitions(tuple(statements), tuple(described))


def _listed(tables: Iterable[TableId]) -> str:
    names = [str(table) for table in tables]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
