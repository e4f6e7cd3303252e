"""How long a test waits for what has to come."""

SECONDS = 120.0
"""Longer than anything takes that is merely slow, on a busy machine too: what has not come by then does not come.

How fast things are is measured by the benchmarks and by the long forms of the tests.
"""
