"""Model families, one folder each: what a checkpoint carries, and nothing else of the package."""
