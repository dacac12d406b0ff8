"""The command line: one module per command, only `train` has resume too. Each parses its flags, calls the library
and prints the result.

`entry` is the entry point of the process. `main` selects the command and turns errors into messages and exit codes.
Read `train` first.
"""
