"""Parse a MySQL user's privileges from the lines of `SHOW GRANTS`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_GRANT = re.compile(r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?P<level>\S.*?) (?:TO|FROM) ", re.DOTALL)
_LEVEL = re.compile(
    r"(?:TABLE )?(?:`(?P<database>(?:[^`]|``)+)`|(?P<all>\*))\.(?:`(?P<table>(?:[^`]|``)+)`|\*)"
)
_OUTSIDE_PARENTHESES = re.compile(r",\s*(?![^()]*\))")

ALL = "ALL PRIVILEGES"


@dataclass(frozen=True, slots=True)
class Grants:
    """Privileges by level. Database names are MySQL's patterns: `%` and `_`, escaped by a backslash."""

    everywhere: frozenset[str] = frozenset()
    databases: tuple[tuple[str, frozenset[str]], ...] = ()
    tables: tuple[tuple[str, str, frozenset[str]], ...] = ()
    revoked: tuple[tuple[str, frozenset[str]], ...] = field(default=())

    def globally(self, *privileges: str) -> bool:
        """Return whether one of `privileges` is granted on everything."""
        return _any(self.everywhere, privileges)

    def somewhere(self, privilege: str) -> bool:
        """Return whether `privilege` is granted on at least one object."""
        levels = [
            self.everywhere,
            *(granted for _, granted in self.databases),
            *(g for _, _, g in self.tables),
        ]
        return any(_any(granted, (privilege,)) for granted in levels)

    def on_table(self, privilege: str, database: str, table: str) -> bool:
        """Return whether `privilege` is granted on one table, at any level."""
        if self.globally(privilege) and not any(
            name == database and _any(gone, (privilege,)) for name, gone in self.revoked
        ):
            return True
        return any(
            _like(pattern, database) and _any(granted, (privilege,)) for pattern, granted in self.databases
        ) or any(
            (owner, name) == (database, table) and _any(granted, (privilege,))
            for owner, name, granted in self.tables
        )


def parse_grants(lines: Iterable[str]) -> Grants:
    """Parse the lines of `SHOW GRANTS`; lines that grant roles or proxies contain no privileges."""
    everywhere: set[str] = set()
    databases: list[tuple[str, frozenset[str]]] = []
    tables: list[tuple[str, str, frozenset[str]]] = []
    revoked: list[tuple[str, frozenset[str]]] = []
    for line in lines:
        grant = _GRANT.match(line)
        level = _LEVEL.fullmatch(grant["level"]) if grant else None
        if grant is None or level is None:
            continue
        # A privilege on single columns, `SELECT (a, b)`, does not cover a table.
        names = (part.strip().upper() for part in _OUTSIDE_PARENTHESES.split(grant["privileges"]))
        privileges = frozenset(name for name in names if "(" not in name)
        database, table = (part and part.replace("``", "`") for part in (level["database"], level["table"]))
        if grant["verb"] == "REVOKE":
            revoked.append((database or "", privileges))
        elif database is None:
            everywhere |= privileges
        elif table is None:
            databases.append((database, privileges))
        else:
            tables.append((database, table, privileges))
    return Grants(frozenset(everywhere), tuple(databases), tuple(tables), tuple(revoked))


def _any(granted: frozenset[str], wanted: Iterable[str]) -> bool:
    return ALL in granted or not granted.isdisjoint(wanted)


def _like(pattern: str, name: str) -> bool:
    expression = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda found: ".*" if found[2] else "." if found[3] else re.escape(found[1] or found[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(expression, name, re.DOTALL) is not None
