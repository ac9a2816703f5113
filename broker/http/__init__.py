"""HTTP: metrics, health, the questions about topics, groups and transactions as JSON, and the web console.

`server.py` has the listener, `asking.py` what every request of `/api/` shares, `access.py` who asks and what
that user may. The others have the routes: `overview.py` and `contents.py` read, `questions.py` tells why and
what was cleaned, `groups.py` is about groups, `quotas.py` about quotas, `topics.py` makes, alters and deletes
topics, `changes.py` is what changes something else. What they answer is made in `broker/questions/`; the
pages are in `broker/console/`.
"""
