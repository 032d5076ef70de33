"""The steps of a segment, in this order: decode, quarantine, admit, evolve, changelog, mirror."""
