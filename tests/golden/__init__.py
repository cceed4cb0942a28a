"""Guards for code that is moved: they notice, on a CPU, when it would no longer do on a GPU what it did."""
