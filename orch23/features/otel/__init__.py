"""OpenTelemetry spans of builds: the options `--otel` of `build` and `log`."""
