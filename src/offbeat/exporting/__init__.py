"""Export: writes a policy as an ONNX or TorchScript file, and runs and compares the file before it keeps it.

`export` has the function that users call, `formats` writes and opens the files, `agreement` compares them with the
policy.
Read `export` first.
"""
