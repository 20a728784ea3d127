"""The kind `llm`: ask a model."""
