"""Benchmarks: what the service does per second on this machine, on real Kafka and MariaDB; JSON out, nothing asserted."""
