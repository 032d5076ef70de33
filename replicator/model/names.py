"""Names as SQL text. MySQL and Spark quote them in the same way."""


def quoted(*parts: str) -> str:
    """A name in backticks; of several parts, each by itself."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
