"""Figures of docs/BENCHMARKS.md, each measured beside its reference in the same run."""
