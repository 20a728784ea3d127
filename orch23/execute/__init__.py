"""Run actions: processes in sandbox directories, limited, isolated and cleaned up."""
