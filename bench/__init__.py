"""Figures of docs/GOALS.md, each measured beside its reference in the same run."""
