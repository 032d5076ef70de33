"""Bring results up to date: as a whole, or by what changed."""
