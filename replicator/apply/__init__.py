"""Writes to the lake, and nothing else does. Planning is pure (`spec`, `sql`); `stage` writes files that nobody
sees yet; `publish` makes them visible together with the commit marker, in one atomic commit."""
