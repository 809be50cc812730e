"""Messages for a server, an observer of what it does, and a conversation with it: `wakupush demo` and `replay`."""
