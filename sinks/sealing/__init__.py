"""Sinks, sealing: personal content under a key per owner, so that destroying the key erases what no log can delete."""

from sinks.sealing.frame import Frame, Unsealable, open_frame, read_frame, seal
from sinks.sealing.identity import Identities
from sinks.sealing.sealer import Admission, DataKeys, Sealer
from sinks.sealing.wrapping import DEVELOPMENT_KEY, KeyWrapper, MasterKeys

__all__ = [
    "DEVELOPMENT_KEY",
    "Admission",
    "DataKeys",
    "Frame",
    "Identities",
    "KeyWrapper",
    "MasterKeys",
    "Sealer",
    "Unsealable",
    "open_frame",
    "read_frame",
    "seal",
]
