"""`wakupush doctor`: checks the parts that the server depends on, and gives advice about faults."""
