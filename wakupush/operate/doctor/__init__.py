"""`wakupush doctor`: checks what the server depends on, and says what is wrong and what to do about it."""
