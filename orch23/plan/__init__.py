"""Values to a plan: the graph of stages, its order and its complaints."""
