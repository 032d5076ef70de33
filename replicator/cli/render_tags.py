"""Print the reports about tags."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from replicator.cli.output import coloured, duration, new_console, new_table, print_json
from replicator.model.counts import counted

if TYPE_CHECKING:
    from replicator.lake.tag_reader import TagStatus

_RUN = "replicator run makes it; start it if it is not running"


def print_tags(tags: "Sequence[TagStatus]", mirror: str, *, as_json: bool) -> None:
    """Print the tags of a mirror."""
    if as_json:
        print_json({"version": 1, "tags": [asdict(tag) for tag in tags]})
        return
    if not tags:
        print(f"The mirror {mirror} has no tags; make one with: replicator tag NAME")
        return
    console = new_console()
    console.print(tag_table(tags))
    for note in tag_notes(tags):
        console.print(Text(note, style="yellow"), soft_wrap=True)


def print_tag(tag: "TagStatus | None", name: str, *, as_json: bool) -> None:
    """Print the tag that was requested, or that it was deleted meanwhile."""
    if as_json:
        print_json({"version": 1, "tag": None if tag is None else asdict(tag)})
        return
    if tag is None:
        print(f"Tag {name} was deleted meanwhile.")
        return
    console = new_console()
    if tag.state == "complete":
        took = "" if tag.lag_seconds is None else f", after {duration(tag.lag_seconds)}"
        tagged = f"Tagged {counted(len(tag.tables), 'table')} at {tag.position}{took}."
        console.print(Text(tagged), soft_wrap=True)
        if tag.tables:
            example = f"SELECT * FROM lake.{tag.tables[0]} VERSION AS OF '{tag.name}'"
            console.print(Text(f"Read a table with: {example}"), soft_wrap=True)
    for note in tag_notes([tag]):
        console.print(Text(note, style="yellow"), soft_wrap=True)


def print_deleted_tag(name: str, *, gone: bool, as_json: bool) -> None:
    """Print whether a tag is deleted."""
    if as_json:
        print_json({"version": 1, "tag": name, "deleted": gone})
    else:
        print(f"Deleted tag {name}." if gone else f"Tag {name} is being deleted by the mirror.")


def tag_table(tags: "Sequence[TagStatus]") -> Table:
    """Build the table of tags, oldest first."""
    table, now = new_table("tag", "state", "tables", "position", "source time", "made"), time.time()
    table.columns[2].justify = "right"
    for tag in tags:
        made = "scheduled" if tag.scheduled else "requested"
        table.add_row(
            Text(tag.name),
            coloured(tag.state),
            Text(f"{len(tag.tables):,}"),
            Text(tag.position or "-"),
            Text("-" if tag.source_ms is None else f"{duration(now - tag.source_ms / 1000)} ago"),
            Text(made),
        )
    return table


def tag_notes(tags: "Sequence[TagStatus]") -> list[str]:
    """Return a line for each tag that is not complete, or that leaves out tables."""
    notes = []
    for tag in tags:
        if tag.state == "failed":
            notes.append(f"Tag {tag.name} failed: {tag.reason}; next: fix the cause and request it again")
        elif tag.state == "requested":
            notes.append(f"Tag {tag.name} is requested: {_RUN}")
        elif tag.state == "started":
            waits = "it waits for tables, or for the connector to confirm its position"
            notes.append(f"Tag {tag.name} is started at {tag.position}: {waits}; {_RUN}")
        if tag.left_out:
            notes.append(f"Tag {tag.name} leaves out paused tables: {', '.join(tag.left_out)}")
    return notes
