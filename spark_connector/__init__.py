"""Kafka logs as Spark columns: a PySpark Python Data Source with the format name `kompakt`.

It speaks the Kafka protocol over plain blocking sockets, so that it reads kompakt and Apache Kafka alike, and
turns the fetched record sets into Arrow record batches with a few kernels: no Python object is made for a
record.

    source.py    what Spark asks first: name, schema, reader, stream reader
    options.py   the option strings of the user -> one frozen `Options`
    offsets.py   pure: offset JSON, ranges, splits, rate limits
    planning.py  which partitions there are, where to begin and end
    client.py    sockets, metadata, offset look-ups, retries; connections kept between tasks
    ranges.py    fetch one offset range of one partition, batch by batch
    columns.py   batch tables -> Arrow columns; kernels.py does the walking and copying
    reader.py    batch reads; stream.py: micro-batches

    write_options.py   options and columns of a writer
    write_columns.py   Arrow columns -> flat arrays; write_kernels.py encodes, partitioners.py places keys
    encoder.py         a slot for each partition, sealed into a record batch when it is full
    producer.py        requests on the way, sequences, whatever has to be sent again
    writer.py          batch writes; stream_writer.py: micro-batches
    commits.py         finished micro-batches into a consumer group

What Spark's driver side imports (source, options, offsets, planning) loads neither numpy, numba nor pyarrow.
Nothing but `protocol/` is imported of this project: executors carry no broker.
"""
