"""Print re-reads: tables that are or were read again from the source."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from replicator.model.counts import counted
from replicator.model.reread import Phase, Request

_DONE_SHOWN: Final = 5
_NEW_SHOWN_MS: Final = 3_600_000
"""How long a new table is shown that was read for the first time."""
_AGAIN_SHOWN_MS: Final = 24 * _NEW_SHOWN_MS
"""How long a table is shown that was read again."""


def print_rereads(requests: Sequence[Request], mirror: str, *, as_json: bool) -> None:
    """Print the report of `bootstrap` and `heal`."""
    if as_json:
        print(json.dumps({"version": 1, "rereads": [request.values() for request in requests]}, indent=2))
        return
    if not requests:
        print(f"The lake has all tables of the mirror {mirror}; --table reads a table again.")
        return
    console = Console(soft_wrap=True)
    for line in reread_lines(requests):
        console.print(line)


def noteworthy(requests: Sequence[Request], at_ms: int) -> list[Request]:
    """Return the re-reads that `status` shows at a time: those that have not succeeded, and the last ones that have."""
    done = [r for r in requests if r.phase is Phase.DONE and at_ms - (r.ended_ms or 0) < _shown_ms(r)]
    newest = sorted(done, key=lambda request: -(request.ended_ms or 0))[:_DONE_SHOWN]
    return [request for request in requests if request in newest or request.phase is not Phase.DONE]


def _shown_ms(request: Request) -> int:
    return _NEW_SHOWN_MS if request.changed is None else _AGAIN_SHOWN_MS


def progress_text(request: Request) -> str:
    """Return what is done for a request now, for the progress bar."""
    waits = f" ({request.problem})" if request.problem else ""
    return f"{request.table} {request.phase}{waits}"


def reread_lines(requests: Sequence[Request]) -> Iterator[Text]:
    """Yield a line for each re-read."""
    for request in requests:
        match request.phase:
            case Phase.DONE:
                # A new table had no rows that could differ.
                differed = "" if request.changed is None else f", {request.changed:,} differed"
                # Of a table that was read when it was empty, all rows come from events.
                read = (
                    f"{counted(request.rows, 'row')} read" if request.rows else "was empty when it was read"
                )
                text = f"{request.table}: {read}{differed} ({request.reason})"
                yield Text(text, style="green")
            case Phase.FAILED:
                yield Text(f"{request.table}: could not be read: {request.problem}", style="red")
            case phase:
                of = f" of about {request.estimated:,}" if request.estimated else ""
                waits = f"; {request.problem}" if request.problem else ""
                text = f"{request.table}: {phase}, {request.rows:,}{of} rows ({request.reason}){waits}"
                yield Text(text, style="yellow")
