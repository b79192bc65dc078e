"""Weighted layers: a learned mixture of an encoder's layers as features."""
