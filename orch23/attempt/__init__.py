"""One stage that runs: its attempts, the conversation with a model, the verification, the money."""
