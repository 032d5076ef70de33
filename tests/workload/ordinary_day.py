"""Read and execute `ordinary_day.sql`: what people and programs do to a database on an ordinary day."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import pymysql
from pymysql.cursors import Cursor

Connection: TypeAlias = "pymysql.Connection[Cursor]"
_FILE: Final = Path(__file__).with_suffix(".sql")


@dataclass(frozen=True, slots=True)
class Session:
    """The statements of one connection.

    Attributes:
        name: what is special about it.
        brief: whether it is part of a short day.
        charset: the character set of the connection.
        since: the first server version that can execute all statements.
    """

    name: str
    statements: tuple[str, ...] = ()
    brief: bool = False
    charset: str = "utf8mb4"
    since: str = "8.0.14"

    def run(self, connect: Callable[[str], Connection], database: str, other: str) -> None:
        """Execute the statements in a connection with the given character set.

        Raises:
            AssertionError: the server refuses one.
        """
        with connect(self.charset) as connection, connection.cursor() as cursor:
            for statement in self.statements:
                text = statement.replace("{db}", database).replace("{other}", other)
                # The name of a user has at most 32 characters.
                text = text.replace("{user}", database[-24:])
                try:
                    cursor.execute(text)
                except pymysql.MySQLError as error:
                    raise AssertionError(f"{self.name}: {error}: {text}") from error


def sessions() -> list[Session]:
    """Return the sessions of a day, in order."""
    found: list[Session] = []
    text = "\n".join(line for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    for part in re.split(r"\n(?=\S)", text):
        if part.startswith("["):
            found.append(_session(*part.strip("[]\n").split(" | ")))
        elif part.strip():
            found[-1] = replace(found[-1], statements=(*found[-1].statements, part.strip("\n")))
    return found


def _session(name: str, *settings: str) -> Session:
    values = dict(setting.split(" ") for setting in settings if " " in setting)
    plain = Session(name, brief="brief" in settings)
    return replace(
        plain, charset=values.get("charset", plain.charset), since=values.get("since", plain.since)
    )
