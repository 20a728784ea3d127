"""The providers `openai`, `azure`, `bedrock` and `vertex`, with OpenAI's batches."""
