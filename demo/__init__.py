"""Demonstrations that run the whole product on real data."""
