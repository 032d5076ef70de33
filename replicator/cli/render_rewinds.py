"""Print rewinds: tables whose lost events the connector sends or has sent again."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from replicator.cli.output import duration
from replicator.model.counts import counted
from replicator.model.rewind import Rewind, RewindPhase

_ENDED_SHOWN: Final = 5


def rewind_lines(rewinds: Sequence[Rewind]) -> Iterator[Text]:
    """Yield a line for each rewind that has not ended, and for the newest of the others."""
    ended = sorted((r for r in rewinds if r.has_ended), key=lambda r: -(r.ended_ms or 0))[:_ENDED_SHOWN]
    for rewind in rewinds:
        if rewind.has_ended and rewind not in ended:
            continue
        ago = duration(time.time() - (rewind.ended_ms or 0) / 1000)
        sent = f"from the beginning of {rewind.file} on"
        match rewind.phase:
            case RewindPhase.DONE:
                told = (
                    f"{counted(rewind.events or 0, 'event')} sent again {ago} ago, {sent} ({rewind.reason})"
                )
                yield Text(f"{rewind.table}: {told}", style="green")
            case RewindPhase.FAILED:
                told = f"events could not be sent again {ago} ago: {rewind.problem}"
                yield Text(f"{rewind.table}: {told}", style="yellow")
            case _:
                told = f"events are sent again {sent}, {rewind.bytes / 1e6:,.0f} MB ({rewind.reason})"
                yield Text(f"{rewind.table}: {told}", style="yellow")
