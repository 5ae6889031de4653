"""The native frame: one C++ call per step on a CPU, built where there is a compiler, and the check that it is right.

Belongs here: the C++ source, its build and cache, its binding to the executor's tensors, and its comparison with the
eager frame. The eager frame stays the reference, and serves where there is no compiler.
"""
