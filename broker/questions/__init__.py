"""What a person asks about a topic: why is it not compacted, what would that give back, what was done, how
is an offset found.

Each question is a function of values, or of a log read on an I/O thread, whose answer is plain data that
`broker/http/` sends as JSON and `broker/cli/` prints. None of them needs a file of its own: they
look at the logs, the cleaner's memory, and the history that is kept in `__kompakt_metadata`.
"""
