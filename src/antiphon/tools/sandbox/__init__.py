"""Runs agents' commands where they can do no harm: bubblewrap, with a minimal root and limits."""
