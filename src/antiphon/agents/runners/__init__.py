"""Runners of others: functions and frameworks that carry out an agent's runs. Contract: foreign_agents 1."""
