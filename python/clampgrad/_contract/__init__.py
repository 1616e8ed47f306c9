"""The contract: the table of conventions, and the names in it."""
