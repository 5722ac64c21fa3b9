"""What a client and a namenode say to each other; generated."""
