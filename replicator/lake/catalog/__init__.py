"""Load, create and change lake tables with Iceberg's Java API, each change as one commit to known metadata."""
