"""What a fetch step is: its class, its YAML, how it is shown, and the addresses that it may not connect to."""
