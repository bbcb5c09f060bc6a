"""Noise: which turns never reach a model, and why (SPEC W4). Pure; the phrases and tool whitelists are reviewed YAML."""

from processors.noise.attachments import describe_attachments
from processors.noise.judgement import NoiseFilter, NoiseVerdict
from processors.noise.normal import information, normal_text

__all__ = ["NoiseFilter", "NoiseVerdict", "describe_attachments", "information", "normal_text"]
