"""`replicator pipeline`: list and explain pipelines, refresh and check their results, drop them."""
