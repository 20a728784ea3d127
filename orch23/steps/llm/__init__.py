"""The step kind `llm`: call a model."""
