"""Snapshots of builds with nothing to do. Imported first; imports nothing else of orch23.

It stands at the bottom and imports nothing of orch23 and little of Python, so that such a build imports nothing more.
"""
