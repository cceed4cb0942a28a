"""Golden records and guards: moved code computes what it did, on a CPU and, as far as a CPU can tell, on a GPU."""
