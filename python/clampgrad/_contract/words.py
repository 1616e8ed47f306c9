"""Numbers in sentences, for everything that tells people how many."""


def counted(count: int, noun: str) -> str:
    """1 call, 2 calls, 1,024 calls."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def out_of(part: int, count: int, noun: str) -> str:
    """How many of all: the only call, all 2 calls, or 1 of the 2 calls."""
    if part == count:
        return f"all {count:,} {noun}s" if count > 1 else f"the only {noun}"
    return f"{part:,} of the {counted(count, noun)}"


def any_of(count: int, noun: str) -> str:
    """As above, after "no": the only call, or any of the 2 calls."""
    return f"the only {noun}" if count == 1 else f"any of the {count:,} {noun}s"
