"""Snapshots of builds with nothing to do. Imported first; imports nothing else of orch23.

Such a build imports nothing else: it takes 3 ms, and the modules that read a pipeline take 100 ms and more. So these
modules also import only a few modules of the standard library.
"""
