"""Export of a policy to an ONNX or TorchScript file. The file is compared with the policy before it is written.

`export` is the public function, `formats` writes and opens the files, `agreement` compares them with the policy.
Read `export` first.
"""
