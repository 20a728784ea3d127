"""Templates: find, render, write into a project, update."""
