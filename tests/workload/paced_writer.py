"""A writer that changes a given number of rows per second, whatever else the machine does."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import pymysql
from pymysql.cursors import Cursor

_PAUSE_S: Final = 0.02
_ROWS: Final = 10_000

PACED: Final = (
    "CREATE TABLE paced (id INT PRIMARY KEY, v BIGINT, note VARCHAR(20))",
    "SET SESSION cte_max_recursion_depth = 1000000",
    f"""
    INSERT INTO paced WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {_ROWS - 1})
    SELECT i, 0, 'é' FROM n
    """,
)
"""The table that the writer changes, and its rows."""


class PacedWriter:
    """Updates rows of the table `paced` while the block runs; see `PACED`.

    If it is late, its next statement changes as many rows as it lacks. So a busy machine reaches the rate too.

    Attributes:
        changes: number of rows changed so far.
    """

    def __init__(self, connect: "Callable[[], pymysql.Connection[Cursor]]", rate: int) -> None:
        """Change `rate` rows per second."""
        self._connect, self._rate = connect, rate
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="paced-writer", daemon=True)
        self._began = 0.0
        self.changes = 0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    @property
    def lacking(self) -> float:
        """Number of changes that it is behind its rate."""
        return self._rate * (time.monotonic() - self._began) - self.changes

    def _work(self) -> None:
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                while not self._stop.wait(_PAUSE_S):
                    self._change(cursor, min(int(self.lacking) + 1, _ROWS))
        except BaseException as error:  # noqa: BLE001 - handed to whoever ends the block
            self._error = error

    def _change(self, cursor: Cursor, count: int) -> None:
        first = self.changes % _ROWS
        rows = "id >= %s AND id < %s" if first + count <= _ROWS else "id >= %s OR id < %s"
        cursor.execute(
            f"UPDATE paced SET v = v + 1, note = CONCAT('é', MOD(v, 1000)) WHERE {rows}",
            (first, first + count if first + count <= _ROWS else first + count - _ROWS),
        )
        self.changes += count
