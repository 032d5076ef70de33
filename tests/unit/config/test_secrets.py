"""Secrets are references to variables and files, and are read only when they are needed."""

from pathlib import Path

import pytest

from replicator.errors import ConfigError
from tests.support.config_files import GOOD, load_text, mistakes_in


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace('{ env = "SHOP_PASSWORD" }', '"hunter2"'),
        GOOD.replace("replicator@db", "replicator:hunter2@db"),
        GOOD + '\n[log.options]\n"sasl.password" = "hunter2"\n',
        GOOD + '\n[lake.options]\n"jdbc.password" = "hunter2"\n',
        GOOD.replace("jdbc:sqlite:lake/catalog.db", "jdbc:postgresql://db/lake?user=u&password=hunter2"),
        GOOD.replace("jdbc:sqlite:lake/catalog.db", "jdbc:mysql://u:hunter2@db/lake"),
        GOOD.replace('{ env = "SHOP_PASSWORD" }', '{ value = "hunter2" }'),
        GOOD.replace("password =", "passwort = 'hunter2'\n#"),
    ],
)
def test_literal_secret_is_refused_and_absent_from_the_error(file: Path, text: str) -> None:
    assert "hunter2" in text
    lines = mistakes_in(file, text)
    assert lines
    assert "hunter2" not in "".join(lines)


def test_secret_is_read_from_the_environment_when_it_is_revealed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    config = load_text(file, GOOD)
    password = config.source.password
    assert password is not None
    with pytest.raises(ConfigError, match="SHOP_PASSWORD is not set"):
        password.reveal()
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    assert password.reveal().get_secret_value() == "hunter2"
    assert "hunter2" not in repr(password.reveal())


def test_secret_is_read_from_a_file_relative_to_the_configuration(file: Path) -> None:
    config = load_text(file, GOOD.replace('{ env = "SHOP_PASSWORD" }', '{ file = "secret.txt" }'))
    password = config.source.password
    assert password is not None
    with pytest.raises(ConfigError, match="cannot read the secret"):
        password.reveal()
    (file.parent / "secret.txt").write_text("hunter2\n")
    assert password.reveal().get_secret_value() == "hunter2"
