"""Rebuild mirrors from their changelogs, now or as of an earlier moment, in place or in another namespace."""
