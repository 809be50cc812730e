"""Jobs over the delivery events: the lake, its export and upkeep, the report, the capacity model, made-up events."""
