"""Development services: a real Kafka broker and a real MariaDB for tests, benchmarks and chaos, without Docker."""
