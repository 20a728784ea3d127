"""OpenTelemetry spans of a build."""
