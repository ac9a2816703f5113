"""Real processes killed at random moments."""
