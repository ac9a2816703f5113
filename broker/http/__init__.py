"""HTTP: metrics, health, the questions about topics, groups and transactions as JSON, and the web console.

`server.py` has the listener, `asking.py` what every request of `/api/` shares. The others have the routes:
`overview.py` and `contents.py` read, `questions.py` tells why and what was cleaned, `changes.py` is what
changes something. What they answer is made in `broker/questions/`; the pages are in `broker/console/`.
"""
