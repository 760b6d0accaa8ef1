"""Bench: measures Vibey against its bars, each beside something else measured in the same minutes.

A number of a machine says little, and less on a machine somebody else uses too. So every family of figures
runs its two sides in turn, A B A B, on the same servers, and gives the median of each side over the rounds, their
spread, and the ratio of each pair. Servers, databases and processes are the measurement's own, in a scratch
folder that is removed with them; nothing of the user's is read or touched.

    figures      what was measured, and whether it meets its bar
    laboratory   scratch servers, and a fresh database, installation and fleet for whoever asks
    pure, latency, durable, enqueueing, endtoend, handover, delay, memory, projects, size, depth, limits
                 one family each
    peers        who is measured beside: installed from the package index in an environment of their own
    plain_celery, peer_litellm, peer_procrastinate
                 what a peer's own interpreter runs
    proxy        a longer way to a server
    report       the results as a page and a picture
"""
