"""MySQL types, their forms in events, and the Iceberg types that they become."""
