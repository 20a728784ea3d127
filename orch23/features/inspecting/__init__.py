"""The commands `explain`, `show`, `runs` and `log`: what stages and runs did, and why."""
