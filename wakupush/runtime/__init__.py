"""The parts that every process needs. Nothing here imports another package of wakupush."""
