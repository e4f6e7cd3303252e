"""Requests to approve calls: asking, parking the run that asked, withdrawing."""
