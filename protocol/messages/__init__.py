"""Every message kompakt speaks, a module an API family. Each enters its APIs into the registry when it is
imported: a client loads the few that it speaks, a broker all of them (`every`).
"""
