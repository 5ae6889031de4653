"""The check of a GPU: what is forecast of kernels, frames and graphs, measured in one short run.

Belongs here: the runner, its checks and their forecasts. Checks import torch, numpy and the workers' compute code only.
"""
