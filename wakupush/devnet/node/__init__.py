"""A development Waku node, with the REST behaviour of nwaku or of go-waku."""
