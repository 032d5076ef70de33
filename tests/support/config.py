"""Build the smallest configuration that is valid."""

from pathlib import Path
from typing import Any

from replicator.config import Config, parse

STRATEGIES = [
    ("split", 2),
    ("split", 3),
    ("merge", 2),
    ("copy-on-write", 2),
    ("equality", 2),
]
"""How mirrors are written: each strategy, and the default one in each format version."""


def minimal_config(base: Path = Path(), **sections: Any) -> Config:
    """Return a configuration with an archive as its log. A section that is given replaces the section of that name.

    Relative paths start at `base`.
    """
    settings: dict[str, Any] = {
        "mirror": {"name": "shop", "state_dir": "state"},
        "source": {"tables": ["shop.*"]},
        "log": {"kind": "archive", "path": "archive"},
        "lake": {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:lake/catalog.db",
            "warehouse": "lake",
            "namespace": "shop",
        },
    }
    return parse(settings | sections, base=base)
