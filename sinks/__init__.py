"""What holds state: truth (SQLAlchemy Core), vectors (Qdrant), the event publisher; each behind a Protocol."""
