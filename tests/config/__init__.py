"""Tests of what can be set."""
