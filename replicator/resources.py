"""Files that lie beside the package in the project and inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource(name: str) -> Path:
    """A file such as `connectors/mysql.json`, of the installed package or of the checkout."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.exists() else _PACKAGE.parent / name
