"""The tree of errors in the docstring of the module."""

import re

from replicator import errors


def test_tree_has_every_error_under_its_base_class() -> None:
    shown: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line)) is not None:
            del path[len(found[1]) // 4 :]
            shown[found[2]] = path[-1] if path else None
            path.append(found[2])
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert shown == {
        name: None if kind.__base__ is Exception else kind.__base__.__name__  # type: ignore[union-attr]
        for name, kind in classes.items()
    }
