"""What every process needs to run, whatever it does. Nothing here imports another package of wakupush."""
