"""Use cases: every change of state goes through here exactly once."""
