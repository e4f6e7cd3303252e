"""What happens inside one run."""
