"""Model families and the core that they share, one flat folder: what checkpoints carry, nothing else."""
