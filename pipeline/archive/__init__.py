"""Jobs over archived messages: fetching them from the Stores, rebuilding the state from them, warming topics."""
