"""The language of pipelines: the keys of stages and steps, expressions, items of lists. Pure."""
