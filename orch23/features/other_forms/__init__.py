"""Responses in other forms than those that were asked for: elements of XML, calls of tools, JSON in prose (ADR 102)."""
