"""The commands `graph`, `vars`, `schema` and `help`: for those who write a pipeline."""
