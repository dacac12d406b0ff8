"""The command line: one module a command; each parses its flags, calls the library and prints.

`entry` starts, `main` chooses the command and turns errors into messages and exit codes.
Read `train` first.
"""
