"""Runners of others: functions and frameworks that carry out an agent's runs. Contract: others 1."""
