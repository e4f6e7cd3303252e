"""Carries out one run."""
