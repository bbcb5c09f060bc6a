"""Stages: what each agent does inside its transaction."""
