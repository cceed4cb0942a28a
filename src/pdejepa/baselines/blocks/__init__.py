"""What several published solvers are built of."""
