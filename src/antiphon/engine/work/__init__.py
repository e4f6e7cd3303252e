"""Workers, and the delivery of work to them."""
