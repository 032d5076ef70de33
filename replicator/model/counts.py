"""Write numbers of things in messages."""


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number and what it counts, such as "1 event" or "2,000 events"; `several` is by default `one` + "s"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
