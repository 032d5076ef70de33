"""The cache of Java libraries; Ivy and Java are small shell scripts here."""

import threading
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import pytest

from replicator.errors import JavaMissing, ReplicatorError
from replicator.jvm import jars
from replicator.jvm.jars import AWS, CONVERTER, DEBEZIUM, KAFKA, POSTGRESQL, SPARK, JarSet
from replicator.jvm.settings import session_conf
from tests.support.config import minimal_config
from tests.support.downloads import reported_downloads

SMALL = JarSet("small", ("org.example:alpha:1.0",), ("org.unwanted:*",))
VERSION_17 = 'openjdk version "17.0.15" 2025-04-15'


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a Java whose only program is Ivy: it writes alpha-1.0.jar to `-retrieve`, and counts its runs."""
    home = tmp_path / "java"
    program(
        home / "bin" / "java",
        f"""if [ "$1" = -version ]; then echo '{VERSION_17}' >&2; exit 0; fi
echo run >> {tmp_path}/runs
while [ $# -gt 1 ]; do [ "$1" = -retrieve ] && lib=$(dirname "$2"); shift; done
echo "	found org.example#alpha;1.0 in public"
mkdir -p "$lib"; echo content > "$lib/alpha-1.0.jar"
echo "	[SUCCESSFUL ] org.example#alpha;1.0!alpha.jar (5ms)" """,
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


@pytest.mark.parametrize(
    "jar_set", [SPARK, POSTGRESQL, AWS, KAFKA, DEBEZIUM, CONVERTER], ids=lambda jar_set: jar_set.name
)
def test_jar_set_is_one_ivy_module_with_pinned_versions(jar_set: JarSet) -> None:
    module = ET.fromstring(jar_set.ivy_xml())
    found = [f"{d.get('org')}:{d.get('name')}:{d.get('rev')}" for d in module.iter("dependency")]
    assert tuple(found) == jar_set.roots
    assert all(
        rev[0].isdigit() and "latest" not in rev and "+" not in rev
        for rev in (r.split(":")[2] for r in found)
    )
    assert len(list(module.iter("exclude"))) == len(jar_set.exclude)


@pytest.mark.parametrize(
    ("lake", "expected"),
    [
        ({"catalog": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db"}, []),
        ({"catalog": "jdbc", "uri": "jdbc:postgresql://localhost/lake"}, [POSTGRESQL]),
        ({"catalog": "glue", "warehouse": "s3://lake"}, [AWS]),
        ({"catalog": "rest", "options": {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}}, [AWS]),
        ({"catalog": "rest", "options": {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"}}, []),
    ],
    ids=["sqlite", "postgresql", "glue", "s3", "other store"],
)
def test_lake_jars_are_those_of_catalog_and_store(
    monkeypatch: pytest.MonkeyPatch, lake: dict[str, Any], expected: list[JarSet]
) -> None:
    asked: list[JarSet] = []

    def fetched(wanted: JarSet, cache: Path | None = None) -> list[Path]:
        asked.append(wanted)
        return [Path(f"{wanted.name}.jar")]

    monkeypatch.setattr(jars, "jars", fetched)
    section = {"uri": "http://localhost", "warehouse": "lake", "namespace": "shop", **lake}
    found = jars.lake_jars(minimal_config(lake=section).lake)
    assert asked == [SPARK, *expected]
    assert found == [Path(f"{wanted.name}.jar") for wanted in (SPARK, *expected)]


def test_class_path_of_the_user_is_added_to_that_of_the_engine() -> None:
    config = minimal_config(spark={"conf": {"spark.driver.extraClassPath": "theirs.jar:more/*"}})
    conf = session_conf(config, [Path("own.jar")])
    assert conf["spark.driver.extraClassPath"] == "own.jar:theirs.jar:more/*"


def test_jars_unpacks_a_distribution_and_registers_its_services(tmp_path: Path, java_home: Path) -> None:
    wanted = JarSet(
        "whole",
        ("org.example:alpha:1.0",),
        distribution="org.example:app:1.0:all",
        services=(("org.Face", "org.Own"),),
    )
    archive = ET.fromstring(wanted.ivy_xml()).find(".//artifact")
    assert archive is not None
    assert archive.attrib == {
        "name": "app", "type": "tar.gz", "ext": "tar.gz", "{http://ant.apache.org/ivy/extra}classifier": "all",
    }  # fmt: skip
    program(
        java_home / "bin" / "java",
        f"""[ "$1" = -version ] && {{ echo '{VERSION_17}' >&2; exit 0; }}
while [ $# -gt 1 ]; do [ "$1" = -retrieve ] && lib=$(dirname "$2"); shift; done
mkdir -p "$lib/deep/lib"; cd "$lib"; echo run > deep/app-runner.jar; echo dep > deep/lib/dep.jar
tar czf app-1.0-all.tar.gz -C deep . ; rm -r deep""",
    )
    found = {str(p.relative_to(wanted.directory(tmp_path) / "lib")): p for p in jars.jars(wanted, tmp_path)}
    assert set(found) == {"app-runner.jar", "lib/dep.jar", "Own-service.jar"}
    with zipfile.ZipFile(found["Own-service.jar"]) as service:
        assert service.read("META-INF/services/org.Face") == b"org.Own\n"
    found["lib/dep.jar"].unlink()
    assert jars.jars(wanted, tmp_path)
    assert found["lib/dep.jar"].exists()


def test_jars_refuses_a_distribution_with_a_file_outside_its_folder(tmp_path: Path, java_home: Path) -> None:
    program(
        java_home / "bin" / "java",
        f"""[ "$1" = -version ] && {{ echo '{VERSION_17}' >&2; exit 0; }}
while [ $# -gt 1 ]; do [ "$1" = -retrieve ] && lib=$(dirname "$2"); shift; done
mkdir -p "$lib/deep"; cd "$lib/deep"; touch ../../outside.jar
tar czPf ../app-1.0-all.tar.gz ../../outside.jar; rm ../../outside.jar""",
    )
    with pytest.raises(ReplicatorError, match=r"outside of its folder: \.\./\.\./outside\.jar"):
        jars.jars(JarSet("whole", distribution="org.example:app:1.0:all"), tmp_path)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["whole.lock"]


def test_jars_downloads_a_set_once_and_reports_the_download(tmp_path: Path, java_home: Path) -> None:
    with reported_downloads() as reported:
        first = jars.jars(SMALL, tmp_path)
        assert [path.name for path in first] == ["alpha-1.0.jar"]
        assert first[0].read_text() == "content\n"
        assert jars.jars(SMALL, tmp_path) == first
    assert runs(tmp_path) == 1
    assert reported == [f"downloading the Java libraries for small into {tmp_path} (only once)"]


def test_jars_downloads_a_damaged_set_again(tmp_path: Path, java_home: Path) -> None:
    first = jars.jars(SMALL, tmp_path)
    first[0].write_text("cut")
    assert jars.jars(SMALL, tmp_path)[0].read_text() == "content\n"
    (SMALL.directory(tmp_path) / jars.MARKER).write_text("{")
    assert jars.jars(SMALL, tmp_path) == first
    assert runs(tmp_path) == 3


def test_jars_downloads_a_set_once_when_several_threads_request_it(tmp_path: Path, java_home: Path) -> None:
    threads = [threading.Thread(target=jars.jars, args=(SMALL, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs(tmp_path) == 1
    leftovers = [path.name for path in (tmp_path / "jars").iterdir() if path.is_dir()]
    assert leftovers == [SMALL.directory(tmp_path).name]


def test_jars_names_the_cause_and_leaves_no_files_when_the_download_fails(
    tmp_path: Path, java_home: Path
) -> None:
    program(
        java_home / "bin" / "java",
        f"""[ "$1" = -version ] && {{ echo '{VERSION_17}' >&2; exit 0; }}
echo ":: resolving dependencies ::"
echo "	SERVER ERROR: Bad Gateway url=maven"
exit 1""",
    )
    with pytest.raises(ReplicatorError, match="SERVER ERROR: Bad Gateway") as caught:
        jars.jars(SMALL, tmp_path)
    assert "REPLICATOR_IVY_SETTINGS" in (caught.value.hint or "")
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["small.lock"]


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        (VERSION_17, 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("what?", None),
    ],
)
def test_java_version_parses_the_output_of_java(tmp_path: Path, shown: str, version: int | None) -> None:
    java = program(tmp_path / "java", f"echo '{shown}' >&2")
    assert jars.java_version(java) == version
    assert jars.java_version(tmp_path / "absent") is None


def test_find_java_names_the_package_to_install_when_no_java_is_usable(tmp_path: Path) -> None:
    old = program(tmp_path / "old" / "bin" / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(JavaMissing, match=f"{old} is Java 11") as caught:
        jars.find_java([old])
    assert "openjdk-17" in (caught.value.hint or "")
    with pytest.raises(JavaMissing, match="no Java is installed"):
        jars.find_java([])


def test_default_cache_is_set_by_environment_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATOR_CACHE", str(tmp_path))
    assert jars.default_cache() == tmp_path
    monkeypatch.delenv("REPLICATOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.default_cache() == tmp_path / "replicator"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert jars.default_cache() == Path("~/.cache/replicator").expanduser()
