"""The whole server on one machine, messages for it, and an observer: `wakupush demo`, `dev` and `replay`."""
