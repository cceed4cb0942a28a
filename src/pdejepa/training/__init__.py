"""The engine that everybody trains with: loop, step, checkpoints, resume, budgets, optimisers, ranks."""
