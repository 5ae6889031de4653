"""The AR worker: runs the Dual-AR model, one planned step at a time."""
