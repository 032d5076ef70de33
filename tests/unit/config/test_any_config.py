"""Any text and any values in a configuration file: it is valid, or each mistake is named."""

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.config import Config, load, parse
from replicator.errors import ConfigError
from tests.support.config_files import GOOD
from tests.support.fuzz import EXAMPLES, changed

SECRET = "hunter2"
FULL = tomllib.loads(GOOD)
FULL["source"]["password"] = SECRET


def nested(depth: int) -> bytes:
    """Return lists within lists."""
    return b"a = " + depth * b"[" + depth * b"]"


def loaded(values: Any) -> Config | ConfigError:
    try:
        return parse(values, base=Path("/base"), name="mirror.toml")
    except ConfigError as error:
        return error


def read(path: Path) -> Config | ConfigError:
    try:
        return load(path)
    except ConfigError as error:
        return error


@settings(max_examples=EXAMPLES)
@given(changed(FULL))
def test_changed_configuration_is_valid_or_its_mistakes_are_named(values: Any) -> None:
    found = loaded(values)
    if isinstance(found, ConfigError):
        assert found.message.strip()
        assert SECRET not in found.message


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | st.integers(1, 5_000).map(nested))
def test_any_bytes_are_valid_or_refused(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mirror.toml"
        path.write_bytes(content)
        assert isinstance(read(path), Config | ConfigError)
