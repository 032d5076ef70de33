"""Resolve paths of the configuration, and find files that the package brings along."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator, ValidationInfo

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SQLITE = "jdbc:sqlite:"


def base_of(info: ValidationInfo) -> Path:
    """Return the folder that relative paths start at: the file's folder, or the current one if there is no file."""
    context = info.context
    return context["base"] if isinstance(context, dict) and "base" in context else Path.cwd()


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a path in quotes")
    return value


def _local(value: object, info: ValidationInfo) -> Path:
    return base_of(info) / Path(_text(value)).expanduser()


def _location(value: object, info: ValidationInfo) -> str:
    text = _text(value)
    return text if _SCHEME.match(text) else str(_local(text, info))


def _catalog_uri(value: object, info: ValidationInfo) -> str:
    text = _text(value)
    if not text.startswith(_SQLITE) or text.startswith(_SQLITE + ":memory:"):
        return text
    return _SQLITE + str(_local(text.removeprefix(_SQLITE), info))


LocalPath = Annotated[Path, PlainValidator(_local)]
"""An absolute path on this machine."""

Location = Annotated[str, PlainValidator(_location)]
"""The location of files: an absolute path, or an unchanged URL such as `s3://bucket/lake`."""

CatalogUri = Annotated[str, PlainValidator(_catalog_uri)]
"""The URI of a catalog; the file in `jdbc:sqlite:FILE` is made absolute."""


_PACKAGE = Path(__file__).parents[1]


def resource(name: str) -> Path:
    """Return the path of a file such as `connectors/mysql.json`, in the installed package or in the checkout."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.exists() else _PACKAGE.parent / name
