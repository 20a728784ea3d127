"""What is put beside a room for pytest to load: our reporter and an empty config. Imported by nobody else."""
