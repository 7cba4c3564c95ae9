"""Back end for PyTorch tensors on any device, and Triton kernels for a GPU."""
