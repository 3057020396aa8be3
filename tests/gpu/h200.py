"""What the estimates assume of an NVIDIA H200."""
PROCESSORS = 132
CLOCK = 1.83e9  # Hz
MEMORY = 4.1e12  # bytes per second
