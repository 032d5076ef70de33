"""Ways to stage net changes for a mirror; they differ in what a commit and a reader pay."""
