"""HTTP and the web page."""
