"""Show the progress of a command."""

from collections.abc import Callable, Iterator
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

ShowProgress = Callable[[str, int, int], None]
"""Called with a text and the number of events, tables or files that are done and in all."""


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
