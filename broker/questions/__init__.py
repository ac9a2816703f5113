"""What a person asks: why a topic is not compacted, what that would give back, what was done, what is in it,
how an offset is found; how the broker is, its disks, groups and transactions. And what is done because a
person asked for it: compact, erase a key.

Each question is a function of values, or of a log read on an I/O thread, whose answer is plain data that
`broker/http/` sends as JSON and `broker/cli/` prints. None of them needs a file of its own: they look at the
logs, the cleaner's memory, and the history that is kept in `__kompakt_metadata`.
"""
