"""Patterns of names, and counted things in messages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.common import has_wildcard, literal_regex, matches, to_regex

characters = "ab.*?[]!^-_$\\(){}|+#, \n\r\u2028äß"
names = st.text(characters, max_size=6)


def matches_by_definition(name: str, pattern: str) -> bool:
    """Return whether a name matches, by the documented grammar."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(matches_by_definition(name[i:], pattern[1:]) for i in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and matches_by_definition(name[1:], pattern[1:])


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("card[1]", "card[1]", True),
        ("card[1]", "card1", False),
        ("[!a]", "[!a]", True),
        ("[!a]", "b", False),
        ("a*", "a", True),
        ("a?", "a", False),
        ("a.b", "a.b", True),
        ("a.b", "axb", False),
        ("A", "a", False),
        ("*", "two\nlines", True),
    ],
)
def test_pattern_has_no_wildcards_but_star_and_question_mark(pattern: str, name: str, expected: bool) -> None:
    assert matches(name, ["other", pattern]) is expected


@given(pattern=names, name=names)
def test_pattern_matches_agree_with_the_documented_grammar(pattern: str, name: str) -> None:
    assert matches(name, [pattern]) is matches_by_definition(name, pattern)


@given(name=names)
def test_literal_regex_matches_only_the_name_itself(name: str) -> None:
    assert re.fullmatch(literal_regex(name), name)
    assert not re.fullmatch(literal_regex(name), name + "a")
    assert has_wildcard(name) is (to_regex(name) != literal_regex(name))
