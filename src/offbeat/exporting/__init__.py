"""Export: a policy as an ONNX or TorchScript file, which is run and compared before it gets its name.

`export` does it all, `formats` writes and opens the files, `agreement` compares them with the policy.
Read `export` first.
"""
