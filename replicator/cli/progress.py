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
def progress_bar(text: str) -> Iterator[ShowProgress]:
    """Show a bar on standard error while the block runs, with `text` until the first progress is shown.

    The bar is removed at the end, and is not drawn if standard error is not a terminal.
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)

        def show(said: str, done: int, total: int) -> None:
            progress.update(task, description=said, completed=done, total=total)

        yield show
