"""Plan files, for a build of what was approved: `plan --out` and `build --plan`."""
