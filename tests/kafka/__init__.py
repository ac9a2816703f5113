"""Apache Kafka itself beside the tests: its jars from Maven, a real broker, and its command line tools.

Everything here needs a JVM (17 or newer) and, the first time, `mvn`. Where they are missing the tests that
use the fixtures of `tests/kafka/fixtures.py` are skipped with the reason, or fail when
KOMPAKT_REQUIRE_JAVA=1.
"""
