"""`wakupush canary`: a client of the server, whose pushes show that all of them arrive."""
