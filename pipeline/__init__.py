"""Jobs on Spark over the delivery events: the lake, reports, the capacity model. It imports wakupush, nothing else."""
