"""The command line: `replicator COMMAND …`. `main` is the entry point."""

from replicator.cli.main import app, main

__all__ = ["app", "main"]
