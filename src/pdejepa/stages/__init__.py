"""Training in stages: one visible loop, exact resume, and the stages that it runs one after another."""
