"""Triton kernels of a frame, of the same signatures as their eager twins in ``ar_worker/ops.py``.

Belongs here: kernels, their launches, the choice between them and their twins, and their compilation without a GPU.
Only ``choose`` and ``calls`` may be imported where there is no Triton.
"""
