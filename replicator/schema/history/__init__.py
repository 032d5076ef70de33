"""Versions of a source table's definition, how they are built and ordered, and what a version says."""
