"""What was decided and read, in chains of hashes; checking them."""
