"""How far a reader has to walk: `python -m benchmarks.walk` prints the ways."""

from benchmarks.walk import MOST, walks


def test_the_way_of_a_request_and_of_a_retry_is_short(server):
    found = walks(server.context)
    for what, walk in found.items():
        assert walk.returns <= MOST[what], walk.stays
        assert len(set(walk.stays)) > 5  # so that something was walked
