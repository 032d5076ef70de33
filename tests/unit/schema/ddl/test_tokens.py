"""Statements are divided into tokens as MySQL does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.schema.ddl.tokens import Token, split_statements, tokenize

SPACE = " \t\n\v\f\r"


def reference_tokens(text: str) -> list[Token]:
    """Read a text character by character, as MySQL's lexer does."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if (end := reference_skipped(text, at)) > at:
            at = end
        elif text[at] in "`'\"":
            name, end = reference_quoted(text, at)
            plain = None if name is None or "'" in name or "\\" in name else name
            found.append(Token("", None, plain) if text[at] == "'" else Token("", name))
            at = end
        elif is_of_word(text[at]):
            begin = at
            while at < len(text) and is_of_word(text[at]):
                at += 1
            word = text[begin:at]
            found.append(Token(word.upper() if word.isascii() else "", word))
        else:
            found.append(Token(text[at], None))
            at += 1
    return found


def reference_skipped(text: str, at: int) -> int:
    """Return the index after a space, a comment or a comment delimiter at `at`; `at` itself if there is none."""
    two, follows = text[at : at + 2], text[at + 2 : at + 3]
    if text[at] in SPACE:
        return at + 1
    if text[at] == "#" or (two == "--" and (follows <= " " or follows == "\x7f")):
        while at < len(text) and text[at] != "\n":
            at += 1
        return at
    if two == "*/":
        return at + 2
    if two != "/*":
        return at
    if follows != "!":
        at += 2
        while at < len(text) and text[at : at + 2] != "*/":
            at += 1
        return at + 2
    digits = 0
    while digits < 6 and text[at + 3 + digits : at + 4 + digits] in tuple("0123456789"):
        digits += 1
    return at + 3 + (digits if digits >= 5 else 0)


def reference_quoted(text: str, at: int) -> tuple[str | None, int]:
    """Return the text in the quotes at `at`, or None if they are not closed, and the index after them."""
    quote, content = text[at], ""
    at += 1
    while at < len(text):
        if text[at] == "\\" and quote != "`":
            content += text[at : at + 2]
            at += 2
        elif text[at] != quote:
            content += text[at]
            at += 1
        elif text[at : at + 2] == quote * 2:
            content += quote
            at += 2
        else:
            return content, at + 1
    return None, len(text)


def is_of_word(char: str) -> bool:
    return char in "_$" or char >= "\x80" or (char.isascii() and char.isalnum())


PIECES = [
    *("'", '"', "`", "\\", "''", '""', "``", "/*", "/*!", "*/", "/*M!", "/*M", "/*/", "*", "/", "!"),
    *("--", "-", "-- ", "--\x01", "#", "\n", " ", "\t", "\u00a0", "\x00", "\x7f", ";", ",", "(", ")", "."),
    *(
        "80000",
        "99999",
        "100000",
        "1",
        "\u0661",
        "a",
        "DROP",
        "drop",
        "\u0131",
        "\u00df",
        "\U0001f600",
        "$_",
        "@",
    ),
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.characters()), max_size=40).map("".join))
def test_tokenize_equals_the_reference_implementation(text: str) -> None:
    assert list(tokenize(text)) == reference_tokens(text)


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        # Ordinary comments; quotes inside have no meaning.
        ("a /*Migration: don't*/ b", ["A", "B"]),
        ("a /*M!100000 b */ c", ["A", "C"]),
        ("a /* \" ` ' # -- */ b", ["A", "B"]),
        ("a /*/ b */ c", ["A", "C"]),
        ("a /**/ b /***/ c", ["A", "B", "C"]),
        ("a /* b /* c */ d", ["A", "D"]),
        ("a /* b", ["A"]),
        # Executable ones are part of the statement; a version has five digits or six.
        ("a /*!b*/ c", ["A", "B", "C"]),
        ("a /*!80000 b */ /*!080000c*/", ["A", "B", "C"]),
        ("a /*!8000 b */", ["A", "8000", "B"]),
        ("a /*!80000 b /* c */ d */ e", ["A", "B", "D", "E"]),
        ("a /*! '*/' b */", ["A", "", "B"]),
        ("a /*! b -- */\n c */ d", ["A", "B", "C", "D"]),
        # Hyphens begin a comment only before a space or a control character.
        ("a -- b\nc", ["A", "C"]),
        ("a --\nb", ["A", "B"]),
        ("a --", ["A"]),
        ("a --b", ["A", "-", "-", "B"]),
        ("a --\u00a0b", ["A", "-", "-", ""]),
        ("1-- don't\n, b", ["1", ",", "B"]),
        ("a # it's\n b", ["A", "B"]),
        ("a#b\nc", ["A", "C"]),
        # String literals, which contain no comments.
        ("'/*' a '*/'", ["", "A", ""]),
        ("'it''s' a 'it\\'s' b '\\\\' c", ["", "A", "", "B", "", "C"]),
        # A letter outside ASCII whose upper case is ASCII is not part of a keyword.
        ("\u0131ndex", [""]),
    ],
)
def test_tokenize_distinguishes_comments_and_string_literals(text: str, keywords: list[str]) -> None:
    assert [token.keyword for token in tokenize(text)] == keywords


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; -- a;\n /* b; */ ;", []),
        ("SELECT 1; SELECT ';' ;", ["SELECT 1", "SELECT ';'"]),
        (
            "-- a\nUSE `a;b`;\n/*!40101 SET x = 1 */;last",
            ["-- a\nUSE `a;b`", "/*!40101 SET x = 1 */", "last"],
        ),
    ],
)
def test_split_statements_ends_them_at_semicolons(text: str, statements: list[str]) -> None:
    assert list(split_statements(text)) == statements
