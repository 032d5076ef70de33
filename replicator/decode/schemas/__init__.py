"""Which schema each event was written with, and to which version of its table it belongs."""
