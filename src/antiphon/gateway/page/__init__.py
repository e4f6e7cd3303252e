"""The web page. Contract: gateway 6."""
