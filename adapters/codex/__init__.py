"""OpenAI's Codex CLI, driven over the stdio of `codex app-server` (JSON lines; tested versions: `agensh.harnesses`)."""
