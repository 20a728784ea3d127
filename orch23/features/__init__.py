"""Parts of orch23 that a build can do without, one folder each. The core never imports them: `model.features`."""
