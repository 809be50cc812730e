"""The whole server on one machine, what is sent to it, and what watches it: `wakupush demo`, `dev` and `replay`."""
