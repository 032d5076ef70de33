"""Pipelines: tables that are computed from mirrors, changelogs and each other, and kept current by what changed."""
