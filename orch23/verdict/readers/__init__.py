"""Readers of test reports: one module for each format, each with a function `read(text, results)`.

A report is text from outside: code under test may have written it. Each reader takes linear time, keeps a limited
depth, and reports what it cannot read as `broken`.
"""
