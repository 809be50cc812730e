"""The client side of the specification: registering, advertising, discovering, querying, sending, receiving."""
