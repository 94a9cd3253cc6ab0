"""Claude Code, over its stream-json protocol on standard input and output."""
