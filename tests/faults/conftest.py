"""The long runs use the same listener as the short tests."""

from tests.api.conftest import edge, start_edge

__all__ = ["edge", "start_edge"]
