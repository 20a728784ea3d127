"""Builds for other programs: JUnit, Chrome traces, the log and the summary of a job of GitHub Actions."""
