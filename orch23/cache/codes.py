"""Names of diagnostic codes of shared caches; docs/diagnostics.md explains them."""

E_CACHE_URL = "E721"
E_CERTIFICATE = "E722"
