"""What of the settings comes to stand on the command line of Spark's Java process."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import ConfigError
from replicator.jvm.jars import find_java
from replicator.jvm.launch import hide_java_options, properties_text, vm_options_text

DEFAULT, EXTRA = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"


def test_java_options_that_may_hold_a_secret_are_read_from_a_file(tmp_path: Path) -> None:
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


def test_no_file_is_read_when_no_java_option_is_hidden(tmp_path: Path) -> None:
    assert hide_java_options({EXTRA: "-Xss2m"}, tmp_path / "f") == ({EXTRA: "-Xss2m"}, [])


def test_unclosed_quote_is_an_error_that_does_not_repeat_the_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a quote is not closed") as caught:
        hide_java_options({EXTRA: "-Dpassword='hunter2"}, tmp_path / "f")
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_java_reads_hidden_options_as_they_were_written(tmp_path: Path) -> None:
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


def test_properties_have_a_line_each() -> None:
    assert properties_text({"a b": " c=d:e#f!", "g": "h\\i\nj"}) == (
        "a\\ b=\\ c\\=d\\:e\\#f\\!\ng=h\\\\i\\nj\n"
    )


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_break_no_line(settings: dict[str, str]) -> None:
    assert properties_text(settings).count("\n") == len(settings)
