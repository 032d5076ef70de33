"""The generated reference pages: they equal the code, and describe it completely."""

import pytest

from tests.support.reference_pages import (
    FOLDER,
    PAGES,
    SECTIONS,
    VARIABLES,
    section_fields,
    template_entries,
    used_variables,
)


@pytest.mark.parametrize("name", PAGES)
def test_committed_reference_page_equals_the_generated_one(name: str) -> None:
    committed = (FOLDER / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), f"docs/reference/{name} is out of date; run: make reference"


def test_template_describes_every_configuration_key() -> None:
    _, entries = template_entries()
    elsewhere = {("log", "path"), ("log", "options")}
    lacking = {
        (section, key)
        for section in SECTIONS
        for key in section_fields(section)
        if key not in entries[section] or not entries[section][key].comment
    }
    assert lacking == elsewhere


def test_template_has_no_unknown_key() -> None:
    _, entries = template_entries()
    unknown = {
        (section, key)
        for section in SECTIONS
        for key in entries[section]
        if key not in section_fields(section)
    }
    assert unknown == set()


def test_reference_describes_every_environment_variable_of_the_code() -> None:
    for_tests = {"REPLICATOR_CRASH_AT"}
    assert used_variables() - for_tests <= VARIABLES.keys()
