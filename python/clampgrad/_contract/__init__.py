"""The contract: the table of conventions, the names in it, and words for what is said about it."""
