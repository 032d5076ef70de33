"""Write data files and delete files that no snapshot refers to yet; a commit makes them visible."""
