"""Kafka's protocol as values: messages, frames, record batches. No sockets, files, clocks, threads, settings.

`schema` declares messages, `codegen` reads and writes them, `framing` puts headers and lengths around them,
`messages` holds them all; `batch`, `records` and `compression` are the format of what is stored.
"""
