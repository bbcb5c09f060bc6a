"""Judgement: pure functions from messages to decisions; no Kafka, no database, no clock of their own."""
