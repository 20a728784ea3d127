"""Values that all packages share. No I/O, no clock."""
