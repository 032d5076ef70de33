"""Locate files that lie beside the package in a checkout and inside it when installed."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def resource(name: str) -> Path:
    """Return the path of a file such as `connectors/mysql.json`, in the installed package or in the checkout."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.exists() else _PACKAGE.parent / name
