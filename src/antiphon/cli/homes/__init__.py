"""What commands do with a home: serve it, check it, move it."""
