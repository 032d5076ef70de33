"""Comparing a mirror with its source."""
