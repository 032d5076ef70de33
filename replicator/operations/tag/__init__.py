"""Tags of all lake tables at one position of the source: request, list and delete them."""
