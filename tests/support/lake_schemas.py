"""Validate what the engine wrote to a lake against the published schemas."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from pyiceberg.catalog import Catalog
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parents[2] / "schemas"
NAMES = (
    "checks-v1.json",
    "commit-marker-v1.json",
    "compared-v1.json",
    "compared-definitions-v1.json",
    "consumer-cursor-v1.json",
    "lake-properties-v1.json",
    "maintained-v1.json",
    "pipeline-costs-v1.json",
    "pipeline-v1.json",
    "reread-v1.json",
    "rewind-v1.json",
    "schema-state-v1.json",
    "schema-steps-v1.json",
    "tag-v1.json",
    "verified-v1.json",
    "verify-report-v1.json",
    "watched-v1.json",
)
PROPERTIES = "lake-properties-v1.json"


def published(name: str) -> dict[str, Any]:
    """Return a published schema."""
    return dict(json.loads((SCHEMAS / name).read_text(encoding="utf-8")))


_REGISTRY: Registry[Any] = Registry().with_resources(
    [(name, Resource.from_contents(published(name))) for name in NAMES]
)


def validate(value: Any, reference: str) -> None:
    """Raise ValidationError unless a value conforms to the schema that `reference` names, as in `FILE#/path`."""
    Draft202012Validator({"$ref": reference}, registry=_REGISTRY).validate(value)


def validate_properties(kind: str, properties: Mapping[str, str]) -> None:
    """Raise ValidationError unless the names, the values and the JSON in the values conform to their schemas.

    `kind` is `table`, `snapshot` or `namespace`.
    """
    validate(dict(properties), f"{PROPERTIES}#/$defs/{kind}")
    patterns = published(PROPERTIES)["$defs"][kind]["patternProperties"]
    for name, value in properties.items():
        # The JSON in a string is only a note to validators.
        for pattern, schema in patterns.items():
            content = schema.get("contentSchema")
            if content is not None and Draft202012Validator({"pattern": pattern}).is_valid(name):
                _validate_content(json.loads(value), content)


def validate_lake(catalog: Catalog, namespace: str) -> int:
    """Validate all properties of a mirror's tables, snapshots and namespaces. Return the number of tables."""
    names = [name for ns in (namespace, f"{namespace}_changes") for name in catalog.list_tables(ns)]
    for name in names:
        table = catalog.load_table(name)
        validate_properties("table", table.properties)
        for snapshot in table.metadata.snapshots:
            if snapshot.summary is not None:
                validate_properties("snapshot", snapshot.summary.additional_properties)
    validate_properties("namespace", _texts(catalog.load_namespace_properties(f"{namespace}_ops")))
    return len(names)


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in properties.items()}


def _validate_content(value: Any, schema: Mapping[str, Any]) -> None:
    Draft202012Validator(dict(schema), registry=_REGISTRY).validate(value)
