"""How commands are read from a tutorial. tests/spark and tests/e2e run the tutorials."""

from pathlib import Path

import pytest

from tests.support.tutorials import CLONE, FOLDER, Step, run, steps, tutorial

PAGE = """# Title

```bash
export WORD=one
mkdir -p inner && cd inner
```

```text
never run this
```

```sql
SELECT 1;
```

```bash
echo "$WORD in $(basename $PWD)"
```
"""


def test_steps_returns_the_blocks_that_a_reader_executes() -> None:
    assert [step.kind for step in steps(PAGE)] == ["bash", "sql", "bash"]


def test_run_keeps_variables_and_folder_between_steps(tmp_path: Path) -> None:
    folder, statements = tmp_path / "empty", list[str]()
    folder.mkdir()
    output = run(steps(PAGE), folder, statements.append)
    assert output == "one in inner\n"
    assert statements == ["SELECT 1;\n"]


def test_run_fails_when_a_command_fails(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(AssertionError, match="exit code 3"):
        run([Step("bash", "echo first\n(exit 3)\necho second\n")], folder)


def test_each_tutorial_begins_with_a_clone_and_has_further_steps() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.md"))
    assert names == ["first-look", "first-mirror", "live-revenue", "local-stack"]
    for name in names:
        first, *others = tutorial(name)
        assert CLONE in first.text
        assert others
