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
        help="The mirror's configuration, as `replicator init` writes it.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]

DEFAULT_CONFIG = Path("replicator.toml")
