"""Turn the text of a pipeline into values: strict YAML with positions, variables, stages."""
