"""A team on one box with Docker Compose: `agensh up`, `down`, `clean`."""
