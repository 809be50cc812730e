"""The process that pulls messages from Waku and puts them onto the Redis queues. It holds no private key."""
