"""Transcripts: what a coding client prints for programs, turned into what people read.

`entries` has the values: said, thought, a tool with its argument, its result, an edit, an error, usage. `formats` says
for each client what its events mean. `reader` takes an output line by line and gives out entries, and `rows` makes of
an entry the rows that a terminal and the page show alike. All of it is pure: it reads no file and asks no clock. A line
that is broken, or of an unknown form, is an entry of its own and shown as it is.
"""
