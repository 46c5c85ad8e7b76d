"""What moves the bytes: Triton kernels, their torch twins, and a KV memory on torch tensors."""
