"""Quoting of SQL identifiers, which is the same in MySQL and Spark."""


def quoted(*parts: str) -> str:
    """Quote an identifier with backticks; each part is quoted separately."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
