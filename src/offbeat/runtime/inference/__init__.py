"""Inference workers: processes that compute the policies' networks for the actors of a run.

Read `board` first (what actors and workers share), then `requests` (in the actor), `batching` and `server` (in the
worker), `worker_process`, and `worker_pool` (in the process of the training loop).
"""
