"""Write results: JSON with a description of the machine, and tables for people."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe

CONSOLE = Console()
if not CONSOLE.is_terminal:
    # In a file or a pipe, tables must not be shortened to the width of a terminal.
    CONSOLE.width = 180


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured value with its goal. `limit` is a minimum if `at_least` is true, else a maximum."""

    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        """Return whether the value meets the goal."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def fields(self) -> dict[str, object]:
        """Return the fields of the JSON result."""
        side = "at least" if self.at_least else "at most"
        return {"name": self.name, "value": self.value, side: self.limit, "met": self.met}


def save(folder: Path, name: str, result: Mapping[str, object], goals: Sequence[Goal]) -> Path:
    """Write `<folder>/<name>.json`: time, machine, result and goals. Return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    whole = {"benchmark": name, "at": when, "machine": describe(), **result}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(whole | {"goals": [goal.fields() for goal in goals]}, indent=1) + "\n")
    CONSOLE.print(f"written: {path}")
    return path


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    CONSOLE.print(table)


def show_goals(goals: Sequence[Goal]) -> None:
    """Print goals and measured values; print nothing if there are no goals."""
    if not goals:
        return
    rows = [
        (
            goal.name,
            goal.value,
            f"{'≥' if goal.at_least else '≤'} {_text(goal.limit)}",
            "[green]met[/]" if goal.met else f"[red]missed by {abs(goal.value / goal.limit - 1):.0%}[/]",
        )
        for goal in goals
    ]
    show("Goals", ("goal", "measured", "wanted", ""), rows)


def _text(cell: object) -> str:
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}" if abs(cell) < 1 else f"{cell:.1f}"
        case int():
            return f"{cell:,}"
        case _:
            return str(cell)
