"""Frozen values shared by all packages: names, positions, types, and what is recorded in the lake.

The types of everything that crosses a package boundary, is written with a commit, or is planned before it is executed.
What is recorded in the lake is read without trust (`recorded`).
"""
