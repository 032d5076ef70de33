"""The settings on the command line of Spark's Java process, and those that are hidden in files."""

import subprocess
from pathlib import Path

import pytest

from replicator.errors import ConfigError
from replicator.jvm.jars import find_java
from replicator.jvm.launch import hide_java_options, vm_options_text

DEFAULT, EXTRA = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"


def test_hide_java_options_moves_options_with_possible_secrets_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a folder" / "java.options"
    conf = {
        "spark.a": "b",
        DEFAULT: "-Xss2m -Da=1",
        EXTRA: "'-Db=x y' -javaagent:agent.jar=key -XX:+UseSerialGC",
    }
    settings, hidden = hide_java_options(conf, file)
    assert hidden == ["-Da=1", "-Db=x y", "-javaagent:agent.jar=key"]
    assert settings == {
        "spark.a": "b",
        DEFAULT: "-Xss2m",
        EXTRA: f"-XX:+UseSerialGC '-XX:VMOptionsFile={file}'",
    }


def test_hide_java_options_refuses_an_unclosed_quote_without_repeating_the_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a quote is not closed") as caught:
        hide_java_options({EXTRA: "-Dpassword='hunter2"}, tmp_path / "f")
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_vm_options_text_is_read_back_unchanged_by_java(tmp_path: Path) -> None:
    values = {
        "plain": "a",
        "spaces": "a b  c",
        "double": 'a "b" c',
        "single": "it's",
        "both": '"\'"',
        "slash": "a\\b",
    }
    file = tmp_path / "java.options"
    file.write_text(vm_options_text([f"-Dtest.{name}={value}" for name, value in values.items()]))
    command = [str(find_java()), f"-XX:VMOptionsFile={file}", "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = [line.strip() for line in shown.splitlines()]
    assert [line for line in lines if line.startswith("test.")] == sorted(
        f"test.{name} = {value}" for name, value in values.items()
    )
