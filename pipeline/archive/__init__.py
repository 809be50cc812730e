"""Jobs over archived messages: what the Stores have is fetched, the state is rebuilt out of it, topics are warmed."""
