"""The AR worker: runs the Dual-AR model, one planned step at a time.

Belongs here: the model, its KV memory, sampling, frames in PyTorch, C++ (``native``) and kernels (``kernels``), and the
executor that runs a step plan. Does not: text, requests, clients, and any decision about who is served.
"""
