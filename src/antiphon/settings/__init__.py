"""What a section of settings is made of, and where a setting stands. Packages of channels build on it."""
