"""Every `kafka.*` option that reads, or reads and writes, honour; for writes see `write_option_table.py`.

Others are Kafka's as well, but nothing here asks for them: `kafka_names.py` says so. A test holds the tables
against what the code looks up.
"""

from __future__ import annotations

from spark_connector.option_table import BOTH, OptionRow

CONNECTION_ROWS = (
    OptionRow("kafka.bootstrap.servers", "", BOTH, "`host:port,...`: where to begin; needed."),
    OptionRow(
        "kafka.client.id", "`kafka.group.id`, or kompakt-spark", BOTH, "The name in the broker's logs."
    ),
    OptionRow("kafka.group.id", "", BOTH, "No group is joined: the name, unless `kafka.client.id` is given."),
    OptionRow("kafka.request.timeout.ms", "30000", BOTH, "How long to wait for one answer."),
    OptionRow(
        "kafka.socket.connection.setup.timeout.ms",
        "10000",
        BOTH,
        "How long a connection may take to be made; doubled with each try in vain.",
    ),
    OptionRow("kafka.socket.connection.setup.timeout.max.ms", "30000", BOTH, "How far that may grow."),
    OptionRow(
        "kafka.default.api.timeout.ms",
        "60000",
        BOTH,
        "How long to try again while a broker cannot be reached or is not ready.",
    ),
    OptionRow("kafka.retry.backoff.ms", "100", BOTH, "The pause before the second try; it doubles."),
    OptionRow("kafka.retry.backoff.max.ms", "1000", BOTH, "The longest pause between two tries."),
    OptionRow("kafka.receive.buffer.bytes", "the system's", BOTH, "The socket's buffer; -1: the system's."),
    OptionRow(
        "kafka.security.protocol",
        "PLAINTEXT",
        BOTH,
        "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
    ),
    OptionRow("kafka.sasl.mechanism", "", BOTH, "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."),
    OptionRow("kafka.sasl.jaas.config", "", BOTH, "Kafka's own text with username and password."),
    OptionRow("kafka.ssl.truststore.location", "", BOTH, "A PEM file of certificates to believe."),
    OptionRow("kafka.ssl.truststore.certificates", "", BOTH, "The same as text."),
    OptionRow("kafka.ssl.truststore.type", "PEM", BOTH, "`PEM`; other kinds are refused with a way out."),
    OptionRow("kafka.ssl.keystore.location", "", BOTH, "A PEM file with the client's certificate and key."),
    OptionRow("kafka.ssl.keystore.certificate.chain", "", BOTH, "The client's certificate as text."),
    OptionRow("kafka.ssl.keystore.key", "", BOTH, "Its key as text."),
    OptionRow("kafka.ssl.keystore.type", "PEM", BOTH, "As `kafka.ssl.truststore.type`."),
    OptionRow("kafka.ssl.key.password", "", BOTH, "For a key that is encrypted."),
    OptionRow(
        "kafka.ssl.endpoint.identification.algorithm",
        "https",
        BOTH,
        "Empty: the certificate may be for another host.",
    ),
    OptionRow("kafka.ssl.enabled.protocols", "TLSv1.2,TLSv1.3", BOTH, "Either or both."),
)
READ_ROWS = (
    OptionRow(
        "kafka.isolation.level",
        "read_uncommitted",
        BOTH,
        "Or `read_committed`, which is the default of `view=latest`.",
    ),
    OptionRow("kafka.check.crcs", "true", BOTH, "Whether each batch's checksum is compared."),
    OptionRow("kafka.max.partition.fetch.bytes", "2097152", BOTH, "About how much one fetch brings."),
    OptionRow("kafka.fetch.max.bytes", "", BOTH, "A limit of the same; the lower one counts."),
    *CONNECTION_ROWS,
)
