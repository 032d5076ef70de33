"""Files of the binary log that a server sends are written into the given folder only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import pytest

from replicator.config import SourceConfig
from replicator.errors import SourceError
from replicator.sources.binlog import download as module

SOURCE = SourceConfig.model_validate({"url": "mysql://joe@127.0.0.1:1/shop", "tables": ("shop.*",)})


class Listing:
    """A server that lists files of its choice."""

    def __init__(self, names: list[str]) -> None:
        self._rows: list[tuple[Any, ...]] = [(name, 4) for name in names]

    def cursor(self) -> "Listing":
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, _: str) -> None: ...

    def fetchone(self) -> tuple[int]:
        return (1,)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


def downloaded(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> tuple[Path, ...]:
    @contextmanager
    def replica(_: SourceConfig) -> Iterator[Listing]:
        yield Listing(list(names))

    def copy(_: Listing, name: str, stream: IO[bytes]) -> Iterator[int]:
        stream.write(name.encode())
        yield len(name)

    monkeypatch.setattr(module, "replica_connection", replica)
    monkeypatch.setattr(module, "_copy", copy)
    return module.download(SOURCE, folder, lambda _, __: None, lambda: False)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../victim.000001",
            "/tmp/victim.000001",
            "a/b.000001",
            "a\\b.000001",
            "..",
            ".",
            "",
            "x",
            ".bashrc",
        ),
        *(
            "b.000001\n",
            "b.00001",
            "b.000001/..",
            "b\0.000001",
            "\0.000001",
            "b.\u0661\u0661\u0661\u0661\u0661\u0661",
        ),
        "a" * 300 + ".000001",
    ],
)
def test_names_that_are_not_of_a_binlog_file_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim.000001"
    victim.write_text("mine")
    with pytest.raises(SourceError, match="is not that of one") as caught:
        downloaded(monkeypatch, tmp_path / "folder", "mysql-bin.000001", name)
    assert caught.value.hint is not None
    assert [path.name for path in tmp_path.rglob("*")] == ["victim.000001"]
    assert victim.read_text() == "mine"
