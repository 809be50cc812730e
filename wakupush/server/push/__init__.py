"""Push requests (71, Sending Client): read, measure, charge, decide, store, correct."""
