"""Looking back: what a session keeps of its conversations. Contract: checkpoints."""
