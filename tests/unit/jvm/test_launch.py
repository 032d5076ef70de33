"""The settings on the command line of Spark's Java process, and those that are hidden in files."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import ConfigError
from replicator.jvm.jars import find_java
from replicator.jvm.launch import hide_java_options, properties_text, vm_options_text

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


def test_hide_java_options_adds_no_file_when_no_option_is_hidden(tmp_path: Path) -> None:
    assert hide_java_options({EXTRA: "-Xss2m"}, tmp_path / "f") == ({EXTRA: "-Xss2m"}, [])


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


def test_properties_text_escapes_special_characters() -> None:
    assert properties_text({"a b": " c=d:e#f!", "g": "h\\i\nj"}) == (
        "a\\ b=\\ c\\=d\\:e\\#f\\!\ng=h\\\\i\\nj\n"
    )


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_text_has_one_line_for_each_property(settings: dict[str, str]) -> None:
    assert properties_text(settings).count("\n") == len(settings)
