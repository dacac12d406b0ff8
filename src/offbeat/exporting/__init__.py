"""Export: writes a policy as an ONNX or TorchScript file, after comparing the actions of the file with the policy.

`export` has the function that users call, `policy_file` converts, compares and writes, `formats` has the formats of the
files, `agreement` compares them with the policy.
Read `policy_file` first.
"""
