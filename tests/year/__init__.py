"""`make year`: a server lives through many days with jumps of the clock, and is judged by what grows."""
