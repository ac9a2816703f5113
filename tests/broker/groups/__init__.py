"""Tests of group coordination and committed offsets."""
