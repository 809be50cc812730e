"""Jobs on Spark: over delivery events the lake, reports, the capacity model; over archived messages the state rebuilt.

It imports wakupush, nothing else.
"""
