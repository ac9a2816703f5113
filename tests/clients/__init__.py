"""Unmodified clients against a real broker process."""
