"""Change global settings of the stack's MySQL server for some time."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.source import SourceDatabase

EASTERN = "US/Eastern"
"""A time zone in which 2026-11-01 01:30 happens twice: at 05:30 and at 06:30 UTC."""
_ZONE = 9001
_TRANSITION_S = 1_793_512_800
"""2026-11-01 06:00 UTC."""


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
