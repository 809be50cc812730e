"""The operator's work: doctor, dead letters, quarantine and replay. The command line only parses and prints."""
