"""Formats numbers in sentences."""


def format_count(count: int, noun: str) -> str:
    """Returns "1 call", "2 calls" or "1,024 calls"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def out_of(part: int, count: int, noun: str) -> str:
    """Returns how many of all: "the only call", "all 2 calls" or "1 of the 2 calls"."""
    if part == count:
        return f"all {count:,} {noun}s" if count > 1 else f"the only {noun}"
    return f"{part:,} of the {format_count(count, noun)}"


def any_of(count: int, noun: str) -> str:
    """For use after "no": returns "the only call" if there is one, or "any of the 2 calls"."""
    return f"the only {noun}" if count == 1 else f"any of the {count:,} {noun}s"
