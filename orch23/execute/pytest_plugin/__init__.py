"""A plugin for the project's own pytest. It is copied into sandbox directories, never imported."""
