"""Export: writes a policy as an ONNX or TorchScript file, after comparing the actions of the file with the policy.

`export` has the function that users call, `formats` writes and opens the files, `agreement` compares them with the
policy.
Read `export` first.
"""
