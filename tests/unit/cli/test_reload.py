"""`replicator reload` as a user calls it, without a mirror."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import replace_module
from tests.support.config_files import GOOD


def test_file_with_errors_is_refused_before_the_mirror_is_told(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "replicator.toml").write_text(GOOD.replace("trigger", "triger"))
    done = cli("reload")
    assert done.code == 2
    assert 'did you mean "trigger"' in done.err


@pytest.mark.parametrize(
    ("changed", "arguments", "out"),
    [
        (("source.tables", "apply.trigger"), (), "Reloaded. Changed: source.tables, apply.trigger.\n"),
        ((), (), "Reloaded. No setting has changed.\n"),
        (("heal.mode",), ("--json",), '{\n  "version": 1,\n  "changed": [\n    "heal.mode"\n  ]\n}\n'),
    ],
)
def test_reload_prints_what_changed(
    cli: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: tuple[str, ...],
    arguments: tuple[str, ...],
    out: str,
) -> None:
    from replicator.runner.run_record import ReloadOutcome

    asked: list[tuple[Path, float]] = []

    def reload(_config: Any, file: Path, seconds: float) -> ReloadOutcome:
        asked.append((file, seconds))
        return ReloadOutcome(1.0, changed)

    (tmp_path / "replicator.toml").write_text(GOOD)
    replace_module(monkeypatch, "replicator.operations.reload", reload=reload)
    done = cli("reload", "--wait", "7", *arguments)
    assert (done.code, done.out, asked) == (0, out, [(Path("replicator.toml"), 7.0)])
