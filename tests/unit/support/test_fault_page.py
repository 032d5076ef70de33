"""The fault matrix: it equals the marks of the tests, and the marks are complete."""

from pathlib import Path

import pytest

from tests.support.faults import PAGE, MarkError, read_faults, render

GOOD = """
import pytest

@pytest.mark.fault("A broker is killed", area="Log", on="Kafka", outcome="waits | continues")
@pytest.mark.long
def test_broker():
    pass
"""


def faults_of(folder: Path, text: str) -> str:
    (folder / "test_some.py").write_text(text)
    return render(read_faults(folder, folder))


def test_committed_fault_page_equals_the_marks_of_the_tests() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(read_faults()), "out of date; run: make faults"


def test_fault_page_has_a_row_for_each_mark(tmp_path: Path) -> None:
    page = faults_of(tmp_path, GOOD)
    row = (
        "| A broker is killed | Kafka | waits \\| continues | nothing "
        "| `test_some.py`<br>`test_broker` | `make test-long` |"
    )
    assert f"## Log\n\n| Fault | On | What happens | Lost | Test | Run by |\n|{' --- |' * 6}\n{row}\n" in page
    assert "`make test`" in faults_of(tmp_path, GOOD.replace("@pytest.mark.long\n", ""))
    assert "`make test-long`" in faults_of(
        tmp_path, GOOD.replace("@pytest.mark.long\n", "") + "pytestmark = [pytest.mark.long]\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('area="Log"', 'area="Loog"', "no area 'Loog'"),
        (', on="Kafka"', "", "missing 1 required positional argument: 'on'"),
        ('on="Kafka"', 'on="Kafka", where="here"', "unexpected keyword argument 'where'"),
        ('on="Kafka"', "on=KAFKA", "malformed node"),
        ('on="Kafka"', 'on=""', "texts of one line"),
        ('"A broker is killed", ', "", "not enough values"),
        ("test_broker", "broker", "a fault is a mark of a test function"),
    ],
)
def test_wrong_mark_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(MarkError, match=told):
        faults_of(tmp_path, GOOD.replace(old, new))
