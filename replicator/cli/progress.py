"""Show the progress of a command that moves events."""

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
"""Called with a text and the number of events that are done and in all."""


@contextmanager
def progress_bar(text: str, console: Console | None = None) -> Iterator[ShowProgress]:
    """Show a bar while the block runs, with `text` until the first progress is shown.

    The bar is drawn on `console`, by default standard error, and is removed at the end. It is not drawn if the console
    is not a terminal.
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
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)

        def show(said: str, done: int, total: int) -> None:
            progress.update(task, description=said, completed=done, total=total)

        yield show
