"""Build the graph of stages: edges, a fixed order, cycles, conflicts."""
