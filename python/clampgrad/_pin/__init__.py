"""clampgrad.pin, and all that it tells torch."""
