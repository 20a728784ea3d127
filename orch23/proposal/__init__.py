"""Read a model's response as files, or say every error in it. Pure."""
