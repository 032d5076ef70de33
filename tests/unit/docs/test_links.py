"""Links of pages that MkDocs does not build: README.md and benchmarks/README.md."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
LONGEST_README: Final = 130
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


@pytest.mark.parametrize("page", ["README.md", "benchmarks/README.md"])
def test_links_point_to_existing_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [m["target"] for m in _LINK.finditer(text) if "://" not in m["target"]]
    assert targets
    broken = [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()]
    assert not broken


def test_readme_is_not_longer_than_its_limit() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def test_navigation_lists_every_page_of_the_documentation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if f" {page}\n" not in navigation} == set()
