"""Who a client is, and what it may do.

A listener speaks one of Kafka's four protocols. With TLS (`tls.py`, `tls_transport.py`) both sides shake
hands first, and the subject of a client's certificate may become its name (`principal.py`). With SASL
the client has to say who it is before anything else: `session.py` holds what a connection may ask so far,
`sasl.py` two conversations (PLAIN, SCRAM) as pure values, `users.py` what is known of users' passwords. The
third, OAUTHBEARER, is in `bearer.py`; what a token has to say in `tokens.py` (pure), whose keys sign it in
`jwks.py`, and what of that holds for a listener in `listener_tokens.py`.
`handlers/authentication.py` and `handlers/users.py` translate. What clients may do is said by rules
(`acls.py`, `rules.py`, `authorizer.py`), which stand before the handlers (`guards/`); who may not is told in
the log (`denials.py`).
Mirrors Kafka's `SaslServerAuthenticator`,
`SslTransportLayer` and `ScramControlManager`.
"""
