"""Find how tables were defined before the first file, since row events only make sense with the columns of their table.

The connector follows all statements in the files by itself. What it cannot know is the definition of a table that was
created earlier: the operator gives it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from replicator.errors import BinlogError, ConfigError
from replicator.model.common import listing
from replicator.model.table import TableId
from replicator.schema.ddl.tables import parse, table_effects
from replicator.schema.ddl.tokens import split_statements, tokenize
from replicator.sources.binlog.scan import Scan


def undefined(scan: Scan, included: Callable[[TableId], bool]) -> list[TableId]:
    """Return the included tables that the files change, by rows or statements, before they create them."""
    seen: set[TableId] = set()
    found: set[TableId] = set()
    for item in scan.items:
        if isinstance(item, TableId):
            found |= {item} - seen
            seen.add(item)
            continue
        for effect, table in table_effects(parse(item.text), item.database):
            if effect == "change" and table not in seen:
                found.add(table)
            seen.add(table)
    return sorted(filter(included, found))


@dataclass(frozen=True, slots=True)
class Definitions:
    """The tables before the first file: statements for MySQL.

    `default_database` is the database of statements that name none.
    """

    statements: tuple[str, ...] = ()
    default_database: str | None = None

    def fingerprint(self) -> str:
        """Return a hash: with other definitions, the events of the same files would differ."""
        content = "\n".join([*self.statements, str(self.default_database)])
        return sha256(content.encode()).hexdigest()


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


def without_file(scan: Scan, included: Callable[[TableId], bool]) -> Definitions:
    """Return that the files define all included tables themselves.

    Raises:
        BinlogError: they do not.
    """
    if tables := undefined(scan, included):
        raise BinlogError(
            f"the files have changes of tables that were created before them: {listing(tables)}",
            "give their definitions as of the first file: --definitions FILE, written by mysqldump --no-data",
        )
    return Definitions()
