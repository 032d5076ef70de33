"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="REPLICATOR_CONFIG",
        metavar="FILE",
        help="Configuration of the mirror.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_CONFIG = Path("replicator.toml")
