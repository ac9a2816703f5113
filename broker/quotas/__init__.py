"""Quotas: how much a client may write, read and ask for, and how long it waits when that was more.

Which quota holds for a client (`limits.py`), and how fast it is (`rates.py`), are pure; `held.py` puts them
together for one kind of quota, `mutations.py` for changes of topics. What was set is in `settings.py`, with
what of it Apache Kafka refuses; who had to wait, in `waits.py`. `quotas.py` counts what is answered, and says
for how long the connection is not read then (KIP-219). `headcount.py` says how many connections there
may be, `gate.py` how fast they may come.
"""
