"""What is private to torch, and how torch is changed."""
