"""The line of a key in the text of a configuration file."""

import pytest

from replicator.config.loading import line_of

TEXT = """\
# [not.a.section]
[log]
kind = "kafka"
  [log.options]
  "sasl.password" = "x"

[[table]]
name = "a.b"
[[table]]
name = "a.c"
partition = [
  "days(t)",
]
[table.properties]
"k.l" = "v"
"""


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("log",), 2),
        (("log", "kind"), 3),
        (("log", "options"), 4),
        (("log", "options", "sasl.password"), 5),
        (("table", 0, "name"), 8),
        (("table", 1, "name"), 10),
        (("table", 1, "partition", 0), 11),
        (("table", 1, "properties", "k.l"), 15),
        (("table", 0, "nothing"), 7),
        (("nothing",), None),
    ],
)
def test_line_of_returns_the_line_of_a_location(location: tuple[int | str, ...], line: int | None) -> None:
    assert line_of(TEXT, location) == line
