"""Backup: truth as one file, back into an empty database, and everything that is derived from it brought up to it again."""
