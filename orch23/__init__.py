"""orch23 builds software with language models as a build: declared, cached, contained, repeatable."""

__version__ = "0.1.0"
