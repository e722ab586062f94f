"""Warmset: routing control plane and gateway in front of vLLM workers."""

__version__ = "0.1.0"
