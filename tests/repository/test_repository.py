"""The repository holds itself to what CONTRIBUTING.md says; `test_checks.py` shows each check bite."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.delta_resolutions import RESOLUTIONS
from docs.delta_writer_rules import WRITER_RULES
from tests.repository import checks, documents, facts, tree

Check = Callable[[checks.Source], Iterator[str]]

OF_MODULES: list[Check] = [
    checks.module_size,
    checks.function_size,
    checks.module_docstring,
    checks.telling_name,
    checks.reasoned_exceptions,
    checks.nameless_locals,
]
OF_TEXTS: list[Check] = [checks.finished, checks.no_machine_path, checks.no_registry_host]
# The only place where waiting is written down.
MAY_SLEEP = {"tests/waiting.py"}
MAY_BE_ALONE = {
    "lakefold.demo.fetch": "a program",
    "lakefold.namespace.functions": "loads Lance's interface if a catalog is asked for",
    "lakefold_committer.observability.tracing": "loads OpenTelemetry if traces are asked for",
}
"""Modules of a few lines that a single other one imports, each with the reason."""
PARTS = {"lakefold", "protos", "table", "log", "ingest", "committer", "reader", "maintenance"}
CORE_CONTRACT = "The core is pure: no IO, no clock, no randomness, no threads"
MOST_WORDS_OF_HABITS = 900
WHOLLY_PURE = ("table/lakefold_table/lance/", "table/lakefold_table/delta/")
KNOW_NO_FORMAT = {
    ("Only the registry of formats names a table format", "lakefold_table"): (
        "lakefold_table.formats",
        "lakefold_table.lance",
        "lakefold_table.delta",
    ),
    ("The reader knows table formats in their own packages alone", "lakefold_reader"): (
        "lakefold_reader.lance",
        "lakefold_reader.delta",
    ),
    ("What gets a batch into a table knows no format", "lakefold_ingest"): (
        "lakefold_ingest.formats",
        "lakefold_ingest.lance",
        "lakefold_ingest.delta",
        "lakefold_ingest.merge.formats",
        "lakefold_ingest.merge.lance",
        "lakefold_ingest.merge.delta",
        "lakefold_ingest.revert.formats",
        "lakefold_ingest.revert.lance",
        "lakefold_ingest.revert.delta",
        "lakefold_ingest.promote",
    ),
    ("Maintenance knows table formats in their own packages alone", "lakefold_maintenance"): (
        "lakefold_maintenance.formats",
        "lakefold_maintenance.lance",
        "lakefold_maintenance.delta",
    ),
}
"""Import contracts with the package that each is about, and the modules of it that may name a format."""


def complaints(check: Check, sources: list[checks.Source]) -> str:
    """All that `check` has to say about these files, a line each."""
    return "\n".join(chain.from_iterable(check(source) for source in sources))


@pytest.mark.parametrize("check", OF_MODULES, ids=lambda check: check.__name__)
def test_modules(check: Check) -> None:
    assert complaints(check, tree.modules()) == ""


@pytest.mark.parametrize("check", OF_TEXTS, ids=lambda check: check.__name__)
def test_texts(check: Check) -> None:
    assert complaints(check, list(tree.texts())) == ""


def test_tests_wait_for_conditions() -> None:
    tests = [each for each in tree.modules() if each.path.startswith("tests/") and each.path not in MAY_SLEEP]
    assert complaints(checks.no_sleep, tests) == ""


def test_every_answer_of_the_admin_client_is_checked() -> None:
    """A connection that breaks gives an offset of -1001 and no error, so only one module may ask."""
    users = {
        each.path
        for each in tree.modules()
        if each.path.startswith("log/") and re.search(r"admin\.client\.", each.text)
    }
    assert users == {"log/lakefold_log/client/requests.py"}


def test_no_question_is_put_that_may_end_the_process() -> None:
    """Librdkafka may free the request of these two while the thread that asks still uses it."""
    asks = re.compile(r"\.(?:list_offsets|delete_records)\(")
    assert [each.path for each in tree.modules() if asks.search(each.text)] == []


def test_no_two_public_classes_have_one_name() -> None:
    product = [each for each in tree.modules() if each.pure.parts[0] in PARTS | {"benchmarks"}]
    assert "\n".join(checks.shared_class_names(product)) == ""


def test_a_module_of_a_few_lines_has_several_importers() -> None:
    sources = [
        checks.Source("/".join(each.pure.parts[each.pure.parts[0] in PARTS - {"lakefold"} :]), each.text)
        for each in tree.modules()
        if each.pure.parts[0] in PARTS | {"benchmarks"}
    ]
    alone = {complaint.partition(" ")[0] for complaint in checks.lone_modules(sources)}
    assert {name for name in alone if not name.startswith("benchmarks.")} == MAY_BE_ALONE.keys()


def pure_core() -> list[checks.Source]:
    """The modules of the pure core, as the import contract names them."""
    paths = "|".join(name.replace(".", "/") for name in source_modules(CORE_CONTRACT))
    return [each for each in tree.modules() if re.search(rf"(?:^|/)(?:{paths})(?:/|\.py$)", each.path)]


def source_modules(contract: str) -> list[str]:
    """The modules that an import contract holds, as it names them."""
    contracts = tomllib.loads(tree.source_at("pyproject.toml").text)["tool"]["importlinter"]["contracts"]
    names: list[str] = next(each["source_modules"] for each in contracts if each["name"] == contract)
    return names


@pytest.mark.parametrize(("contract", "package"), KNOW_NO_FORMAT, ids=lambda each: each.split()[0])
def test_a_contract_about_formats_leaves_out_no_module(contract: str, package: str) -> None:
    """A new module is held as well. `KNOW_NO_FORMAT` lists which modules may name a format."""
    named = (*source_modules(contract), *KNOW_NO_FORMAT[contract, package])
    modules = {
        ".".join(each.pure.with_suffix("").parts[1:])
        for each in tree.modules()
        if each.path.startswith(f"{package.removeprefix('lakefold_')}/{package}/")
        and each.pure.stem != "__init__"
    }
    assert {
        each for each in modules if not f"{each}.".startswith(tuple(f"{name}." for name in named))
    } == set()
    assert {name for name in named if name.startswith(package)} == {
        name for name in named if any(f"{each}.".startswith(f"{name}.") for each in modules)
    }


def test_the_map_has_every_folder_and_marks_those_of_the_core() -> None:
    core = {each.path for each in pure_core()}
    modules: dict[str, set[str]] = {}
    for each in tree.modules():
        if each.pure.parts[0] in PARTS and len(each.pure.parts) > 1 and each.path != "protos/generate.py":
            modules.setdefault(str(each.pure.parent), set()).add(each.path)
    marks = {folder: paths <= core for folder, paths in modules.items()}
    on_map = documents.mapped(tree.source_at("ARCHITECTURE.md"))
    assert {folder: mark for folder, mark in on_map.items() if folder.split("/")[0] in PARTS} == marks


def test_core_calls_no_impure_builtin() -> None:
    assert complaints(checks.pure_builtins, pure_core()) == ""


def test_linter_and_import_contract_agree_on_the_core() -> None:
    core = {each.path for each in pure_core()}
    assert set(made("CORE")) == {path for path in core if not path.startswith(WHOLLY_PURE)}
    assert all((tree.ROOT / folder / "ruff.toml").exists() for folder in WHOLLY_PURE)


def test_documents_name_what_exists() -> None:
    tracked, modules = tree.paths(), tree.modules()
    names = [
        complaint
        for document in tree.documents()
        for complaint in chain(
            documents.named_paths(document, tracked),
            documents.named_modules(document, modules),
            documents.named_targets(document, make_targets()),
        )
    ]
    assert "\n".join(names) == ""


@pytest.mark.parametrize("page", facts.PAGES_BY_FORMAT.values())
def test_facts_name_the_tests_that_hold_them(page: str) -> None:
    source = tree.source_at(page)
    texts = {each.path: each.text for each in tree.modules() if each.path.startswith("tests/")}
    assert "\n".join([*facts.anchored(source), *facts.held(source, texts)]) == ""


def test_rules_for_writers_name_the_tests_that_hold_them() -> None:
    texts = {each.path: each.text for each in tree.modules() if each.path.startswith("tests/")}
    rules = [(rule.requires, rule.says, rule.tests) for rule in WRITER_RULES]
    resolutions = [(each.step, "", each.test) for each in RESOLUTIONS]
    assert "\n".join(facts.expected([*rules, *resolutions], texts)) == ""


@pytest.mark.parametrize("name", facts.PAGES_BY_FORMAT)
def test_citations_of_facts_lead_to_one(name: str) -> None:
    numbers = {fact.number for fact in facts.facts_of(tree.source_at(facts.PAGES_BY_FORMAT[name]))}
    assert len(numbers) > 15
    names = [complaint for source in citing() for complaint in facts.resolved(source, numbers, name)]
    assert "\n".join(names) == ""


def test_no_citation_leads_out_of_the_repository() -> None:
    names = [complaint for source in citing() for complaint in facts.elsewhere(source)]
    assert "\n".join(names) == ""


@pytest.mark.parametrize("name", facts.PAGES_BY_FORMAT)
def test_each_fact_is_relied_on(name: str) -> None:
    modules = [each for each in citing() if each.path.endswith(".py")]
    page = tree.source_at(facts.PAGES_BY_FORMAT[name])
    assert "\n".join(facts.uncited(page, modules, name)) == ""


def citing() -> list[checks.Source]:
    """The files that may cite facts: all but the checks on citations, and their samples."""
    return [each for each in tree.texts() if not each.path.startswith("tests/repository/")]


def test_decisions_are_numbered_and_complete() -> None:
    decisions = [each for each in tree.documents() if each.path.startswith("docs/decisions/0")]
    assert list(documents.decision_numbers([each.pure.name for each in decisions])) == []
    assert (
        complaints(documents.decision_form, [each for each in decisions if each.pure.name[:4] != "0000"])
        == ""
    )


def test_the_index_of_decisions_has_each_once_by_its_title() -> None:
    pages = [each for each in tree.documents() if each.path.startswith("docs/decisions/0")]
    titles = {each.pure.name: each.text.partition("\n")[0].removeprefix("# ") for each in pages}
    index = tree.source_at("docs/decisions/README.md").text
    named = re.findall(r"^- \[(\d{4})\]\(([^)]+)\) (.+)$", index, re.MULTILINE)
    assert sorted((name, f"{number} · {title}") for number, name, title in named) == sorted(
        (name, title) for name, title in titles.items() if not name.startswith("0000")
    )


def test_promises_are_cited_by_their_tests() -> None:
    document = tree.source_at("docs/operations/promises.md")
    assert len(documents.PROMISE.findall(document.text)) > 20
    texts = {each.path: each.text for each in tree.modules()}
    assert "\n".join(documents.cited_promises(document, texts)) == ""


def test_the_habits_fit_on_one_page() -> None:
    """How tests are written and run is in tests/README.md."""
    assert len(tree.source_at("CONTRIBUTING.md").text.split()) <= MOST_WORDS_OF_HABITS


def make_targets() -> set[str]:
    """The targets that a person can name."""
    return {
        target
        for line in re.findall(r"^\.PHONY:(.*)$", tree.source_at("Makefile").text, re.MULTILINE)
        for target in line.split()
        if not target.startswith(".")
    }


def made(*names: str) -> list[str]:
    """The words that these variables of the Makefile have."""
    variables = " ".join(f"$({name})" for name in names)
    return subprocess.run(
        ["make", "--no-print-directory", "-f", "-", "shown"],
        cwd=tree.ROOT,
        check=True,
        capture_output=True,
        text=True,
        input=f"include Makefile\nshown:\n\t@echo {variables}\n",
    ).stdout.split()


def test_make_runs_the_whole_of_each_sample() -> None:
    listed = made("EACH_POINT", "STORMS")
    assert set(listed) <= set(tree.paths())
    assert "\n".join(checks.unlisted_samples(tree.modules(), listed)) == ""


def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=tree.ROOT, check=True, capture_output=True, text=True
    ).stdout
    listed = {line.split()[0] for line in re.sub(r"\x1b\[\d*m", "", shown).splitlines()}
    assert listed == make_targets()


def test_every_exception_to_a_linter_has_its_reason() -> None:
    text = tree.source_at("pyproject.toml").text
    tables = re.findall(
        r"^\[tool\.(?:ruff\.lint|ruff\.lint\.per-file-ignores)\]$.*?(?=^\[)", text, re.MULTILINE | re.DOTALL
    )
    rules = [line for table in tables for line in table.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]
    filters = text.split("filterwarnings = [")[1].split("\n]")[0].splitlines()
    excused = [before for before, line in pairwise(filters) if '"ignore' in line]
    assert len(rules) > 10
    assert [line for line in rules if not re.search(r",\s+# \S", line)] == []
    assert [line for line in excused if not re.match(r"\s+# \w", line)] == []


def test_lock_answers_every_requirement() -> None:
    project = tomllib.loads(tree.source_at("pyproject.toml").text)["project"]
    lock = tree.source_at("requirements.lock").text
    locked = {
        canonicalize_name(name): version for name, version in re.findall(r"^(\S+)==(\S+)", lock, re.MULTILINE)
    }
    asked = [
        Requirement(each)
        for each in [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    ]
    missing = [
        str(each)
        for each in asked
        if each.name != project["name"]
        and not each.specifier.contains(locked.get(canonicalize_name(each.name), "0"))
    ]
    assert missing == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-demo.lock"])
def test_lock_has_hashes_and_no_addresses(name: str) -> None:
    lock = tree.source_at(name).text
    pins = re.split(r"^(?=\S+==)", lock, flags=re.MULTILINE)[1:]
    assert pins
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []
    assert re.findall(r"://|--find-links|--index-url", lock) == []


def test_the_demo_installs_a_part_of_what_the_tests_do() -> None:
    small, whole = (
        set(re.findall(r"^\S+==\S+", tree.source_at(name).text, re.MULTILINE))
        for name in ("requirements-demo.lock", "requirements.lock")
    )
    assert small < whole
    assert not any(pin.startswith(("mypy", "pytest", "ruff")) for pin in small)


@pytest.mark.parametrize("generator", ["protos.generate", "docs.generate"])
def test_what_is_generated_is_fresh(generator: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", generator, "--check"],
        cwd=tree.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


LOADED = """
import importlib, pkgutil, sys

for name in sys.argv[1].split(","):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print(*sorted(sys.modules))
"""
"""Loads all modules of some packages, and prints what is loaded then."""


@pytest.mark.parametrize(
    ("packages", "others"),
    [
        ("lakefold_committer,lakefold_log", {"pyarrow", "lance", "pyspark", "pandas"}),
        ("lakefold_reader", {"confluent_kafka", "lakefold_committer"}),
        ("lakefold_table", {"confluent_kafka", "lakefold_log", "lance", "pyspark"}),
    ],
)
def test_what_a_package_never_loads(packages: str, others: set[str]) -> None:
    """A committer's image holds no Arrow; who only reads needs no Kafka."""
    folders = tomllib.loads(tree.source_at("pyproject.toml").text)["tool"]["hatch"]["build"]["dev-mode-dirs"]
    path = ":".join(str(tree.ROOT / folder) for folder in folders)
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED, packages],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "PATH": ""},
    ).stdout
    assert set(loaded.split()) & others == set()


def test_ci_runs_what_people_run() -> None:
    assert (tree.ROOT / ".ci/run").stat().st_mode & 0o111
    assert "make test" in tree.source_at(".ci/run").text
