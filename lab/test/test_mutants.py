"""What `make mutants` breaks: by rule, everywhere in the folders that it names."""

import json
import os
import signal

import pytest

from lab import mutants as tool
from lab.mutants import TESTS, WAIVED, broken, mutants, mutants_of, sources


@pytest.mark.parametrize("text, expected", [
    ("return lt(a, f(b));", [("lt(a, f(b))", "le(a, f(b))")]),
    ("x = select(m, E::halved(g), g);", [
        ("select(m, E::halved(g), g)", "select(m, g, E::halved(g))"), ("E::halved(g)", "g"),
    ]),
    ("M open = negate<M>(a) | b;", [("negate<M>(a)", "M(a)")]),
    ("return a | b & c;", [("b & c", "b | c")]),
    ("if (a.size() > 2) {", [("a.size() > 2", "!(a.size() > 2)")]),
    ("y = has ? a : b;", [("has", "!(has)")]),
    ("return {kBoth, 0};", [("kBoth", "kSelf")]),
    ("{\n  check(a, b);\n  x = a;\n}", [("check(a, b);", ";"), ("x = a;", ";")]),
    ("Mask<K> lt(K a, K b) {}\n// lt(a, b)\nstatic_assert(a == b);\nconstexpr bool f(int a) {\n return a && b; }", []),
    ("if constexpr (a && b) { return eq(a, b); }", [("eq(a, b)", "le(a, b)")]),
])  # fmt: skip
def test_rules_for_cpp(text, expected):
    assert [(m.was, " ".join(m.becomes.split())) for m in mutants_of("a.h", text)] == expected


@pytest.mark.parametrize("was, becomes", [
    ("NumberShares{{a, b}, differentiated}", "NumberShares{{b, a}, differentiated}"),
    ("std::array{a_t, b_t, c_t}", "std::array{b_t, a_t, c_t}"),
    ("at::where(passes, grad, 0)", "at::where(passes, 0, grad)"),
])  # fmt: skip
def test_rules_for_formulas(was, becomes):
    text = f"- name: f({was})\n  x: g({was})\n"
    assert [(m.at, m.was, m.becomes) for m in mutants_of("a.yaml", text)] == [("2:8", was, becomes)]


def test_a_broken_file_is_itself_unless_a_mutant_runs():
    text = "if (has) { return select(m, eq(a, b), c); }"
    inner = "(::clampgrad_mutant == 3 ? (le(a, b)):(eq(a, b)))"
    assert broken(text, [*enumerate(mutants_of("a.h", text), 1)]) == (
        "if (((::clampgrad_mutant == 1) != bool(has)))"
        f" {{ return (::clampgrad_mutant == 2 ? (select(m, c, eq(a, b))):(select(m, {inner}, c))); }}"
    )


def test_every_file_with_a_rule_has_mutants():
    files = {m.file for m in mutants()}
    # Declarations, and what the compiler decides.
    headers = {"base": "bits bounds convention for_python gpu", "pin": "pin"}
    headers["kernels"] = "call dim_order fused layout rules/all"
    without = {f"csrc/{folder}/{n}.h" for folder, names in headers.items() for n in names.split()}
    without |= {f"csrc/base/{n}.cpp" for n in ("stamp", "single_threaded")}
    assert sources().keys() - files == without
    assert all(any(f.startswith(folder) for f in files) for folder in TESTS)


def test_what_is_waived_is_made():
    made = [(m.file, " ".join(m.was.split())) for m in mutants()]
    for file, starts in WAIVED.items():
        for start, reason in starts.items():
            assert reason and any(f == file and was.startswith(start) for f, was in made), start


def test_an_interrupted_run_goes_on_until_a_file_changes(tmp_path, monkeypatch):
    built = []
    for name in ("TREE", "LIB", "RAN", "BUILT_FROM"):
        monkeypatch.setattr(tool, name, tmp_path / name)
    monkeypatch.setattr(tool, "build_quickly", lambda *paths, **_: built.append(paths))

    tool.build()
    mutant = tool.Mutant("csrc/base/bounds.cpp", "1:1", 0, 1, "a", "b")
    tool.RAN.write_text(json.dumps([str(mutant), "a cell", tool.state([])]) + "\n")
    tool.build()
    assert len(built) == len(tool.ran([mutant])) == 1

    monkeypatch.setattr(tool, "PACKAGE", ("csrc",))  # as if the other files had gone
    tool.build()
    assert len(built) == 2 and not tool.ran([mutant])


def test_a_worker_that_somebody_ends_says_nothing(monkeypatch):
    """Such a mutant runs again later, and one that crashes is noticed."""

    def first_failure(signalled, said):
        os.kill(os.getpid(), signalled) if signalled else os._exit(139)

    monkeypatch.setattr(tool, "first_failure", first_failure)
    for signalled in (signal.SIGKILL, signal.SIGTERM):
        with pytest.raises(tool.Ended):
            tool.outcome(signalled)
    assert tool.outcome(0) == "a crash"


def test_an_outcome_rests_on_the_tests_that_decide_it(tmp_path, monkeypatch):
    file = tmp_path / "test_kernels.py"
    file.write_text("as it is\n")
    mutants = [tool.Mutant("csrc/pin/pin.cpp", f"{n}:1", 0, 1, "a", "b") for n in range(3)]
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "RAN", tmp_path / "ran.jsonl")
    monkeypatch.setitem(TESTS, "csrc/pin", ["test_kernels.py::test_one", "test_others.py"])
    killed = ["test_others.py", "a cell", None]
    with tool.RAN.open("w") as ran:
        for mutant, by in zip(mutants, killed, strict=True):
            print(json.dumps([str(mutant), by, tool.state(tool.decisive(mutant, by))]), file=ran)
    assert [*tool.ran(mutants).values()] == killed
    file.write_text("with another test\n")
    assert [*tool.ran(mutants).values()] == killed[:2]
