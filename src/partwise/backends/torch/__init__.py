"""torch tensors on any device, and Triton kernels for a GPU."""
