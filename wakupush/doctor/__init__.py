"""`wakupush doctor`: what is wrong with what the server depends on, and what to do about it."""
