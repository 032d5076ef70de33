"""The tables that pipelines write, and what each of them records of its refreshes."""
