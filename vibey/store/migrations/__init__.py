"""The steps that bring a database to the declared tables."""
