"""One file per command. Each has `register(app)` and is named in `COMMANDS` of `pdejepa.app.cli`."""
