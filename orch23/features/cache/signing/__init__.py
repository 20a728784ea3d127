"""Sign results in a shared cache, and verify their signatures."""
