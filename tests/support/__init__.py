"""What tests of several folders share: `tests/` is on the path, so whoever is tested imports it as `support`."""
