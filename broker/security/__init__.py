"""Who a client is, and what it may do.

A listener speaks one of Kafka's four protocols. With TLS (`tls.py`, `tls_transport.py`) both sides shake
hands first, and the subject of a client's certificate may become its name (`principal.py`). With SASL
the client has to say who it is before anything else: `session.py` holds what a connection may ask so far,
`sasl.py` the two conversations (PLAIN, SCRAM) as pure values, `users.py` what is known of users' passwords.
`handlers/authentication.py` and `handlers/users.py` translate. What clients may do is said by rules
(`acls.py`, `authorizer.py`), which stand before the handlers (`guards/`).
Mirrors Kafka's `SaslServerAuthenticator`,
`SslTransportLayer` and `ScramControlManager`.
"""
