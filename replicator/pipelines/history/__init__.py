"""Histories: tables with the versions of a mirror's rows, written from its changelog as results of pipelines are."""
