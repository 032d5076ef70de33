"""The class archive is written by the first Java process that ends without an error, and used by the next."""

import os
import shlex
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from replicator.jvm.class_data_sharing import ClassArchive, class_archive
from replicator.jvm.jars import find_java

IVY = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))


def start(archive: ClassArchive, program: str = "org.apache.ivy.Main") -> "subprocess.Popen[bytes]":
    options = shlex.split(" ".join(archive.java_options()))
    command = [str(find_java()), *options, "-cp", str(IVY), program, "-version"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_class_archive_is_written_by_the_first_process_and_used_by_the_next(tmp_path: Path) -> None:
    archive = class_archive(find_java(), [IVY], tmp_path / "a cache")
    archive.keep(start(archive))
    assert archive.path.exists()
    archive = class_archive(find_java(), [IVY], tmp_path / "a cache")
    assert [f"-XX:SharedArchiveFile={archive.path}"] == shlex.split(archive.java_options()[0])
    with start(archive) as java:
        java.wait()
        archive.keep(java)
    assert java.returncode == 0
    assert list(archive.path.parent.iterdir()) == [archive.path]


def test_only_the_class_archives_that_were_used_last_are_kept(tmp_path: Path) -> None:
    archive = class_archive(find_java(), [IVY], tmp_path)
    folder = archive.path.parent
    folder.mkdir()
    days = {"5.jsa": 5, "1.jsa": 1, "9.jsa": 9, "2.jsa": 2, "4.jsa": 4, "begun.123": 0, "left.456": 1}
    for name, age in days.items():
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - age * 86_400,) * 2)
    archive.java_options()
    assert {file.name for file in folder.iterdir()} == {"1.jsa", "2.jsa", "4.jsa", "5.jsa", "begun.123"}


@pytest.mark.parametrize("change", ["other.jar", "newer"])
def test_class_archive_has_another_path_when_a_library_changes(tmp_path: Path, change: str) -> None:
    library = tmp_path / "some.jar"
    library.write_bytes(b"1")
    before = class_archive(find_java(), [library], tmp_path)
    if change == "newer":
        library.write_bytes(b"22")
    else:
        library = library.rename(tmp_path / change)
    assert class_archive(find_java(), [library], tmp_path).path != before.path
