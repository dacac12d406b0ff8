"""Export: writes a policy as an ONNX or TorchScript file, after comparing the actions of the file with the policy.

`export` has the function that users call, `policy_file` converts, compares and writes, `exported_policy` is the network
in the file, from observations to actions. `formats` has the formats of the files, `format_names` their names,
`observations` draws random observations, and `agreement` compares the actions of the file with those of the policy.
Read `policy_file` first.
"""
