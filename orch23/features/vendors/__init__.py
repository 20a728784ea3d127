"""The providers `anthropic`, `openai`, `azure`, `bedrock` and `vertex`."""
