"""The choice of a server; servers are shell scripts that print their version."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from replicator.errors import StackError
from replicator.operations.stack import mysql_dist
from replicator.operations.stack.mysql_program import MySqlProgram, find_mysqld, program_in
from replicator.operations.stack.process import Machine

Find = Callable[..., MySqlProgram]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def server(path: Path, version: str) -> Path:
    return script(path, f"echo '{path}  Ver {version} for Linux on x86_64 (MySQL Community Server - GPL)'")


def debian_root(root: Path, version: str = "9.7.0") -> Path:
    """Create a Debian system whose loader, which is executed, prints the version of its server."""
    for name in ("usr/sbin/mysqld", "usr/lib/x86_64-linux-gnu/libz.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    server(root / "lib64/ld-linux-x86-64.so.2", version)
    return root


def machine(tmp_path: Path, *, is_root: bool = False) -> Machine:
    """Return a machine that has only the programs in `bin`."""
    folder = str(tmp_path / "bin")
    return Machine(is_root, "x86_64", lambda name: shutil.which(Path(name).name, path=folder))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Put MySQL's release into the cache, and return its folder."""
    folder = tmp_path / "cache" / "mysql" / f"{mysql_dist.VERSION}-linux-x86_64"
    server(folder / "bin/mysqld", mysql_dist.VERSION)
    return folder


@pytest.fixture
def cache(tmp_path: Path, release: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def find(tmp_path: Path, cache: Path) -> Find:
    """Return `find_mysqld` for an ordinary user of a machine without a server."""
    return partial(find_mysqld, cache=cache, machine=machine(tmp_path))


def test_find_mysqld_prefers_the_server_of_the_system(tmp_path: Path, cache: Path, find: Find) -> None:
    own = server(tmp_path / "bin/mysqld", "8.4.2")
    debian_root(cache / "mysql-root")
    assert find() == MySqlProgram((str(own),), version="8.4.2")


def test_find_mysqld_creates_a_debian_system_when_the_user_is_root(tmp_path: Path, find: Find) -> None:
    made = debian_root(tmp_path / "made")
    script(tmp_path / "bin/debootstrap", f'for last; do :; done; /bin/cp -r {made} "$last"')
    find = partial(find, machine=machine(tmp_path, is_root=True))
    said: list[str] = []
    assert find(report=said.append).version == "9.7.0"
    assert said == ["creating a Debian system with MySQL"]
    assert find(mysql_dist.VERSION).version == mysql_dist.VERSION


@pytest.mark.parametrize(
    ("choice", "version"), [("8.0", "8.0.33"), ("8.0.33", "8.0.33"), ("9", "9.7.0"), ("8.4", "8.4.2")]
)
def test_find_mysqld_selects_a_server_by_version_or_version_prefix(
    tmp_path: Path, cache: Path, choice: str, version: str, find: Find
) -> None:
    server(tmp_path / "bin/mysqld", "8.4.2")
    debian_root(cache / "mysql-root")
    assert find(choice).version == version


def test_find_mysqld_names_the_available_versions_when_a_version_is_unavailable(
    tmp_path: Path, find: Find
) -> None:
    server(tmp_path / "bin/mysqld", "8.4.2")
    with pytest.raises(StackError, match=r"MySQL 8\.04 is not available here, only 8\.4\.2 \(.*\), 8\.0\.33"):
        find("8.04")
    with pytest.raises(StackError, match="newest is neither a MySQL version nor a path") as caught:
        find("newest")
    assert "with a slash" in (caught.value.hint or "")


def test_mysqld_of_another_system_runs_with_the_loader_of_that_system(tmp_path: Path) -> None:
    root = debian_root(tmp_path / "root")
    program = program_in(root)
    assert program.command[0] == str(root / "lib64/ld-linux-x86-64.so.2")
    assert program.command[-1] == str(root / "usr/sbin/mysqld")
    assert str(root / "usr/lib/x86_64-linux-gnu") in program.command[2].split(":")
    assert f"--basedir={root / 'usr'}" in program.files
    with pytest.raises(StackError, match="incomplete"):
        program_in(tmp_path)
