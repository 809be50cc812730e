"""examples/js, a client in another language: it holds to the vectors, and speaks with the server."""

from e2e.example import need_node, node, register_query_and_send

need_node()


def test_it_holds_to_the_vectors():
    assert "vectors hold" in node("vectors.js")


def test_it_registers_asks_and_sends(stack, own_node_url, tmp_path):
    register_query_and_send(stack, own_node_url, tmp_path)
