"""Skills: folders of instructions and programs that owners trust by their hashes."""
