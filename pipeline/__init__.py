"""Jobs on Spark over delivery events (lake, reports, capacity model) and archived messages (rebuilding the state).

Of this repository it imports only wakupush.
"""
