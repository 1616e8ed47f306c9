"""The list of what `make mutants` breaks is up to date."""

from lab.mutants import broken, listed, name


def test_what_is_to_be_broken_stands_where_the_list_says():
    """Exactly once: broken() raises otherwise."""
    assert len(broken()) == len({mutant["file"] for mutant in listed()})
    assert len({name(mutant) for mutant in listed()}) == len(listed())
