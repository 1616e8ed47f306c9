"""docs/support.md says what ran on each release."""

from lab.support import cell, of_present_tests


def test_a_cell_of_the_support_page_says_what_ran():
    ran, failed = {"passed": 3, "failed": 0}, {"passed": 3, "failed": 1}
    files = ["test_a", "test_b"]
    assert cell({"test_a": ran, "test_b": ran}, files) == "tested"
    assert cell({"test_a": ran}, files) == "partly"
    assert cell({"test_a": ran, "test_b": failed}, files) == "1 of 7 failed"
    assert cell({"test_a": {"passed": 0, "failed": 0}}, files) == cell(None, files) == "untried"
    assert cell({}, files, "compiled") == "built" and cell(None, files, "compiled") == "untried"


def test_a_run_of_files_that_are_no_more_is_dropped():
    ran = {"passed": 3, "failed": 0}
    runs = {"only built": {}, "gone": {"test_gone": ran}}
    runs["partly"] = {"test_gone": ran, "test_cli": ran}
    assert of_present_tests(runs) == {"only built": {}, "partly": {"test_cli": ran}}
