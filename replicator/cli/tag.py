"""`replicator tag`: tag all lake tables at one position of the source; list and delete tags."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile
from replicator.errors import UsageError

if TYPE_CHECKING:
    from replicator.lake.reading.tags import TagStatus


def tag(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Name of the tag. Without it, the tags are listed.", show_default=False
        ),
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Delete the tag.")] = False,
    skip_paused: Annotated[
        bool,
        typer.Option(
            "--skip-paused", help="Leave out paused tables. Otherwise the tag fails if a table is paused."
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", help="How long to wait for the mirror; 0 returns at once."),
    ] = 600,
    as_json: AsJson = False,
) -> None:
    """Tag all lake tables at one position of the source.

    Joins over tables that are read at the tag see one state of the database: every mirror and every changelog has
    exactly the changes from before the position, which is the end of a transaction. The running mirror makes the tag.
    It chooses the end of the binlog as the position, and divides the batch of each table there; tables without later
    changes are tagged when the connector has confirmed the position. If no mirror runs, the next
    `replicator run` makes the tag; so does `replicator run --until-caught-up`. Needs log.connect_url.

    Readers use the tag's name: in Spark `SELECT … FROM shop.orders VERSION AS OF 'NAME'`. Maintenance keeps tagged
    snapshots. [tags] in the configuration makes tags at intervals, and deletes old ones.

    Without NAME, lists the tags. With --delete, deletes one: the running mirror does, or this command if none runs.
    Exits with 1 if the tag failed, or is not complete in time; it is still made or deleted then.

    \b
    Examples:
      replicator tag before-release-7 -c shop.toml
      replicator tag
      replicator tag --json | jq '.tags[] | select(.state == "complete") | .name'
      replicator tag --delete before-release-7
    """
    if name is None:
        if delete:
            raise UsageError("--delete needs the name of a tag", "list the tags: replicator tag")
        _list(config, as_json=as_json)
    elif delete:
        _delete(config, name, wait, as_json=as_json)
    else:
        _create(config, name, wait, skip_paused=skip_paused, as_json=as_json)


def _list(config: Path, *, as_json: bool) -> None:
    from replicator.cli.render import print_tags
    from replicator.config import load
    from replicator.operations.tag.request import list_tags

    settings = load(config)
    print_tags(list_tags(settings), settings.mirror.name, as_json=as_json)


def _create(config: Path, name: str, wait: float, *, skip_paused: bool, as_json: bool) -> None:
    from replicator.cli.output import progress_bar
    from replicator.cli.render import print_tag
    from replicator.config import load
    from replicator.operations.tag.request import await_tag, request_tag

    settings = load(config)
    request_tag(settings, name, skip_paused=skip_paused)
    with progress_bar("waiting for the mirror") as show:
        found: TagStatus | None = await_tag(settings, name, wait, show)
    print_tag(found, name, as_json=as_json)
    raise typer.Exit(0 if found is not None and (found.state == "complete" or wait == 0) else 1)


def _delete(config: Path, name: str, wait: float, *, as_json: bool) -> None:
    from replicator.cli.output import progress_bar
    from replicator.cli.render import print_deleted_tag
    from replicator.config import load
    from replicator.operations.tag.delete import delete_tag

    settings = load(config)
    with progress_bar("reading the lake") as show:
        gone = delete_tag(settings, name, wait, show)
    print_deleted_tag(name, gone=gone, as_json=as_json)
    raise typer.Exit(0 if gone or wait == 0 else 1)
