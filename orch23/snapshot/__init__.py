"""What a build that had nothing to do looked at, and whether all of it is as it was: read before anything else is.

It stands at the bottom and imports nothing of orch23 and little of Python, so that such a build imports nothing more.
"""
