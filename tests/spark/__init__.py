"""The Spark connector: its parts directly against a small fake broker, and whole in a Spark session."""
