"""The progress bar of commands."""

from rich.console import Console

from replicator.cli.output import progress_bar


def test_progress_bar_shows_text_and_events() -> None:
    console = Console(record=True, force_terminal=True, width=100)
    with progress_bar("starting Spark", console) as show:
        assert "starting Spark" in console.export_text()
        show("replaying", 30, 1200)
    assert "replaying" in (text := console.export_text())
    assert "30/1200" in text
