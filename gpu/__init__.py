"""What moves the bytes: the room for Triton kernels and a device KV memory.  Nothing lives here yet."""
