"""Rules that people write: data that can tighten what the fixed checks allow, and never loosen it. Contract: flow 9."""
