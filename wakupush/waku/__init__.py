"""A Waku node, nwaku or go-waku, over its REST API."""
