"""Results of stages in a shared cache: how it is reached, what is in it, and whose signatures count."""
