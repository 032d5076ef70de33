"""The steps of a segment, in this order: decode, quarantine, evolve, changelog, mirror."""
