"""One file per command, or per family of commands."""
