"""Old Java clients beside the broker: what they write, read and administer, while it is killed."""
