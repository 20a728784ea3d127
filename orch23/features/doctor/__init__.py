"""The command `doctor`: check the machine, the project and the models that its pipeline may call."""
