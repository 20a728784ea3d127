"""Caches of package managers in the project, which stages without the network see: `tool_caches` (ADR 98)."""
