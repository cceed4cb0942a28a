"""Pictures and animations of trajectories."""
