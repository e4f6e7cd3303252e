"""The shapes of the wire: camelCase, integer milliseconds, absent values absent. Contract: answers 4."""
