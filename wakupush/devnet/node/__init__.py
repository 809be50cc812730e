"""A development Waku node, with nwaku's manners or go-waku's."""
