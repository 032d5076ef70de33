"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.next_steps import remember_config
from replicator.errors import UsageError

if TYPE_CHECKING:
    from replicator.model.moments import AsOf


def _remembered(context: typer.Context, file: Path) -> Path:
    given = getattr(context.get_parameter_source("config"), "name", "") == "COMMANDLINE"
    remember_config(file if given else None)
    return file


ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="REPLICATOR_CONFIG",
        metavar="FILE",
        help="Configuration of the mirror.",
        callback=_remembered,
    ),
]

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLES]...",
        help='Only these source tables, as in "shop.orders" or "shop.*".',
        show_default=False,
    ),
]


TableOption = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="PATTERN", help="The same as the arguments. Repeatable."),
]


def chosen(tables: list[str] | None, option: list[str] | None) -> tuple[str, ...]:
    """Return the tables that are named as arguments or by `--table`, each once."""
    return tuple(dict.fromkeys([*(tables or ()), *(option or ())]))


def moment(option: str, text: str | None, command: str = "rebuild") -> "AsOf | None":
    """Return the moment of the source that an option names; the help of `command` describes what it may be.

    Raises:
        UsageError: the text is no moment.
    """
    from replicator.model.moments import parse_as_of  # noqa: PLC0415 - only some commands need it

    try:
        return None if text is None else parse_as_of(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"see: replicator {command} --help") from error


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_CONFIG = Path("replicator.toml")
