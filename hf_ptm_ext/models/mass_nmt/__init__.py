"""MASS for translation: the XLM-based variant."""
