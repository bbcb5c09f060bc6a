"""Erasing: from somebody's wish to a receipt that can be verified for ever (SPEC L4)."""
