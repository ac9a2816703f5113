"""kompakt against what others say the protocol is."""
