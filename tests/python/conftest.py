"""Fixtures that the tests of the Python side share."""

from typing import Iterator

import pytest


@pytest.fixture(scope="session")
def worlds() -> Iterator["object"]:
    """Real gloo process groups, by size; see gloo_worlds.py. One set for all tests that ask."""
    from gloo_worlds import GlooWorlds  # not before a test asks: some run where torch is not

    worlds = GlooWorlds()
    yield worlds
    worlds.close()
