"""The documents: every command they show prints what they show, every program in them runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_golden import ENVIRONMENT, kvoracle, shown

from kvoracle.model.mutants import MUTANTS
from kvoracle.model.operations import OPERATIONS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def blocks(path, language=""):
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)


PAGES = [README, *sorted(ROOT.glob("docs/*.md"))]
SHOWN = [
    pytest.param(page, block, id=block.splitlines()[0])
    for page in PAGES
    for block in blocks(page)
    if block.startswith("$ kvoracle")
]


@pytest.mark.parametrize(("page", "block"), SHOWN)
def test_pages_show_what_the_command_prints(page, block, tmp_path):
    arguments = block.splitlines()[0].removeprefix("$ kvoracle ").split()
    done = kvoracle(arguments, tmp_path)
    printed = f"$ kvoracle {' '.join(arguments)}\n{done.stdout}"
    if os.environ.get("KVORACLE_UPDATE_GOLDEN"):
        page.write_text(page.read_text("utf-8").replace(block, printed), "utf-8")
        block = printed

    documented = subprocess.CompletedProcess([], done.returncode, block.partition("\n")[2], "")
    assert done.stderr == ""
    assert shown(arguments, documented) == shown(arguments, done)


def test_the_adapter_in_the_documents_works_and_its_broken_twin_is_found(tmp_path):
    adapter, test = blocks(ROOT / "docs" / "adapters.md", "python")
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "my_adapter.py").write_text(adapter, "utf-8")
    (tmp_path / "broken.py").write_text(
        adapter.replace("reversed(self.tables.pop(request))", "self.tables.pop(request) * 2"),
        "utf-8",
    )
    (tmp_path / "test_mine.py").write_text(test.replace("range(25)", "range(3)"), "utf-8")

    def run(*command):
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    fuzz = ("kvoracle", "fuzz", "--engine", "walk", "--budget", "20000ops", "--seed", "1")
    assert run(*fuzz, "--allocator", "my_adapter:MyAdapter").returncode == 0
    broken = run(*fuzz, "--allocator", "broken:MyAdapter")
    assert broken.returncode == 1
    assert "VIOLATION" in broken.stdout
    assert run("pytest", "-q", "test_mine.py").returncode == 0


def test_the_format_page_names_every_operation_and_field():
    page = (ROOT / "seeds" / "README.md").read_text("utf-8")

    for operation in OPERATIONS:
        fields = ", ".join(f"`{name}`" for name in operation.__struct_fields__)
        assert f"| `{operation.verb}` | {fields} |" in page


def test_the_readme_counts_the_mutants():
    assert f"\n{len(MUTANTS)} allocators are broken on purpose" in README.read_text("utf-8")


def test_the_bug_page_names_every_bug_of_every_mutant():
    page = (ROOT / "docs" / "bugs.md").read_text("utf-8")

    for mutant in MUTANTS:
        for bug in mutant.bugs:
            (row,) = [line for line in page.splitlines() if line.startswith(f"| {bug} |")]
            assert f"`{mutant.name}`" in row


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")))
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), target


def test_make_help_names_every_target():
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)

    assert phony is not None
    assert sorted(targets) == sorted(phony[1].split())
