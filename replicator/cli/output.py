"""The parts that the reports of all commands share: tables, consoles, colours, JSON."""

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "current": "green",
    "behind": "yellow",
    "may differ": "yellow",
    "paused": "red",
    "unreadable": "red",
    "complete": "green",
    "failed": "red",
    "equal": "green",
    "different": "red",
    "undecided": "yellow",
}
_PIPE_WIDTH = 100_000


def duration(seconds: float) -> str:
    """Format a time span in its one or two largest units: `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 1 h`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {smaller_unit}"
    raise AssertionError


def coloured(word: str) -> Text:
    """Return a word in the colour that it has in all reports."""
    return Text(word, style=COLOURS.get(word, "yellow"))


def new_table(*columns: str) -> Table:
    """Return a table without borders, whose texts are folded."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def new_console(*, stderr: bool = False) -> Console:
    """Return a console; if the output is not a terminal, wide enough that no line is cut or wrapped."""
    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=_PIPE_WIDTH)


def print_json(value: object) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
