"""The parts that all commands print: tables, consoles, colours, JSON and progress."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from replicator.model.common import ShowProgress

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
    "MATCH": "green",
    "DIFFERENT": "red",
    "MISSING": "red",
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


def megabytes(size: int) -> str:
    """Format a size in bytes."""
    return f"{size / 1e6:,.1f} MB"


def coloured(word: str) -> Text:
    """Return a word in the colour that it has in all reports."""
    return Text(word, style=COLOURS.get(word, "yellow"))


def new_table(*columns: str) -> Table:
    """Return a table without borders, whose texts are folded. A column of numbers is named with `>` before it.

    On a narrow terminal, the numbers are not folded.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith(">")
        made.add_column(
            column.removeprefix(">"),
            overflow="fold",
            justify="right" if is_number else "left",
            no_wrap=is_number,
        )
    return made


def cells(*values: Text | str | int | None, unknown: str = "-") -> list[Text]:
    """Return the cells of a row: texts as they are, numbers in groups of digits, and `unknown` for None."""
    texts = (unknown if v is None else f"{v:,}" if isinstance(v, int) else v for v in values)
    return [text if isinstance(text, Text) else Text(text) for text in texts]


def say(console: Console, text: str, style: str = "") -> None:
    """Print a text that the terminal may wrap."""
    console.print(Text(text, style=style), soft_wrap=True)


def ago(milliseconds: int) -> str:
    """Format how long ago a time was, in milliseconds since the epoch."""
    return f"{duration(time.time() - milliseconds / 1000)} ago"


def confirmed(question: str) -> bool:
    """Ask on standard error: standard output is for the report."""
    try:
        return Confirm.ask(Text(question), console=Console(stderr=True), default=False)
    except EOFError:
        return False


def new_console(*, stderr: bool = False) -> Console:
    """Return a console; if the output is not a terminal, wide enough that no line is cut or wrapped."""
    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=_PIPE_WIDTH)


def print_json(value: object) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


@contextmanager
def progress_bar(text: str, console: Console | None = None, *, lines: bool = False) -> Iterator[ShowProgress]:
    """Show a bar while the block runs, with `text` until the first progress is shown.

    The bar is drawn on `console`, by default standard error, and is removed at the end. It is not drawn if the console
    is not a terminal; with `lines`, each new text is printed there instead.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
    )
    console = console or Console(stderr=True)
    if lines and not console.is_terminal:
        yield _print_lines(console, text)
        return
    # Without `disable`, an empty line would be written to a file or pipe.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=None)

        def show(said: str, done: int, total: int) -> None:
            progress.update(task, description=said, completed=done, total=total)

        yield show


def _print_lines(console: Console, text: str) -> ShowProgress:
    """Print each text that differs from the one before it, and return the function that does so."""
    last = text

    def show(said: str, done: int, total: int) -> None:
        nonlocal last
        if said != last:
            console.print(
                f"{said} ({done:,} of {total:,} done)", soft_wrap=True, highlight=False, markup=False
            )
        last = said

    console.print(text, soft_wrap=True)
    return show
