"""Change global settings of the stack's MySQL server for some time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.source import SourceDatabase

EASTERN = "US/Eastern"
"""A time zone in which 2026-11-01 01:30 happens twice: at 05:30 and at 06:30 UTC."""
_ZONE = 9001
_TRANSITION_S = 1_793_512_800
"""2026-11-01 06:00 UTC."""


@dataclass(frozen=True)
class Environment:
    """Settings of the server, and the time zone of the mirror's process."""

    time_zone: str
    sql_mode: str
    client_zone: str

    def __str__(self) -> str:
        return f"{self.time_zone} {self.client_zone} {self.sql_mode.partition(',')[0]}".strip()


USUAL = Environment("SYSTEM", "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "UTC")
KOLKATA = Environment("+05:30", "ANSI_QUOTES,PIPES_AS_CONCAT", "America/New_York")
ENVIRONMENTS = (
    Environment(EASTERN, "", "America/New_York"),
    KOLKATA,
    Environment(
        EASTERN,
        "NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_UNSIGNED_SUBTRACTION",
        "Asia/Kolkata",
    ),
    Environment("SYSTEM", "TRADITIONAL,ONLY_FULL_GROUP_BY,REAL_AS_FLOAT", "America/New_York"),
)


@contextmanager
def server_settings(database: SourceDatabase, **settings: str | int) -> Iterator[None]:
    """Set global variables during the block."""
    if settings.get("time_zone") == EASTERN:
        _create_zone(database)
    before = dict(zip(settings, database.rows(f"SELECT {_globals(*settings)}")[0], strict=True))
    _set(database, settings)
    try:
        yield
    finally:
        _set(database, before)


def _globals(*names: str) -> str:
    return ", ".join(f"@@GLOBAL.{name}" for name in names)


def _set(database: SourceDatabase, settings: dict[str, str | int]) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET GLOBAL {name} = %s", (value,))


def _create_zone(database: SourceDatabase) -> None:
    """Define the zone if the server has no tables of time zones."""
    if database.rows(f"SELECT CONVERT_TZ('2026-11-01', '{EASTERN}', '+00:00')")[0][0] is not None:
        return
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for table, values in {
            "time_zone": f"({_ZONE}, 'N')",
            "time_zone_name": f"('{EASTERN}', {_ZONE})",
            "time_zone_transition": f"({_ZONE}, {_TRANSITION_S}, 1)",
            "time_zone_transition_type": f"({_ZONE}, 0, -14400, 1, 'EDT'), ({_ZONE}, 1, -18000, 0, 'EST')",
        }.items():
            cursor.execute(f"REPLACE INTO mysql.{table} VALUES {values}")
