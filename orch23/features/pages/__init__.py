"""The page of a run: the commands `report` and `view`."""
