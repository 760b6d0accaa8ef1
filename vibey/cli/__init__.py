"""The command line: each module is one command, which reads its arguments, calls a service, and prints."""
