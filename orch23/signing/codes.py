"""Names of diagnostic codes of signatures; docs/diagnostics.md explains them."""

E_KEY = "E732"
W_NOT_SIGNED = "W731"
W_NOT_STORED = "W732"
