"""Real servers and scripted faults on loopback, for tests and benchmarks of this package and of its users."""
