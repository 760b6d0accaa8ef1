"""The shell around the core: each service loads a snapshot, asks the domain to decide, and saves the answer."""
