"""Names of diagnostic codes of signatures; docs/diagnostics.md explains them."""

E_NOT_SIGNED = "E731"
E_KEY = "E732"
