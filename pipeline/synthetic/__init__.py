"""Events that nobody caused: a server in numbers, for benchmarks and trials."""
