"""The rooms and their walls: who imports whom, and how large things may become."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("reference", "impl", "gpu", "model")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
STDLIB = set(sys.stdlib_module_names)
HEAVY = {"torch", "triton", "z3", "vllm", "sglang"}
NOT_OURS = re.compile(r"(^|/)(\.(?!ci/)[^/]+|build|dist|__pycache__|[^/]+\.egg-info)/")


def files_of(room):
    return sorted((ROOT / room).rglob("*.py"))


CODE = [path for room in ROOMS for path in files_of(room)] + sorted(
    (ROOT / "kvoracle").glob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def short(path):
    return path.relative_to(ROOT).as_posix()


def imports(node, package=""):
    """(module, line) of every import below a node, relative ones made absolute."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = child.module or ""
            if child.level:
                module = importlib.util.resolve_name("." * child.level + module, package)
            if module == "kvoracle":
                yield from ((f"kvoracle.{alias.name}", child.lineno) for alias in child.names)
            else:
                yield module, child.lineno


def imports_of(path):
    package = ".".join(["kvoracle", *path.relative_to(ROOT).parent.parts])
    return list(imports(ast.parse(path.read_text(encoding="utf-8")), package))


def imports_at_import_time(path):
    """Only what runs when the module is imported: function bodies and TYPE_CHECKING left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if is_function or is_for_types:
            node.body = [ast.Pass()]
    return list(imports(tree, ".".join(["kvoracle", *path.relative_to(ROOT).parent.parts])))


def strangers(room, allowed):
    """Imports of a room that start with none of the allowed names."""
    return [
        f"{short(path)}:{line} imports {module}"
        for path in files_of(room)
        for module, line in imports_of(path)
        if not any(module == name or module.startswith(f"{name}.") for name in allowed)
    ]


def test_there_is_code_in_the_rooms_that_are_checked():
    assert len(files_of("reference")) > 3
    assert len(files_of("impl")) > 3
    assert len(files_of("model")) > 10
    assert files_of("gpu")


def test_reference_imports_the_standard_library_and_itself():
    assert strangers("reference", STDLIB | {"kvoracle.reference"}) == []


def test_impl_imports_numpy_the_standard_library_and_itself():
    assert strangers("impl", STDLIB | {"numpy", "kvoracle.impl"}) == []


def test_gpu_imports_torch_triton_the_standard_library_and_itself():
    assert strangers("gpu", STDLIB | {"torch", "triton", "kvoracle.gpu"}) == []


def test_model_imports_impl_and_gpu_only_in_adapters_and_mutants():
    found = [
        f"{short(path)}:{line} imports {module}"
        for path in files_of("model")
        if path.relative_to(ROOT / "model").parts[0] not in ("adapters", "mutants")
        for module, line in imports_of(path)
        if re.match(r"kvoracle\.(impl|gpu)(\.|$)", module)
    ]

    assert found == []


def test_nothing_heavy_is_imported_at_import_time_outside_adapters_and_gpu():
    found = [
        f"{short(path)}:{line} imports {module}"
        for path in CODE
        if not short(path).startswith(("model/adapters/", "gpu/"))
        for module, line in imports_at_import_time(path)
        if module.split(".")[0] in HEAVY
    ]

    assert found == []


def modules_loaded_by(statement):
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import kvoracle.model.cli", HEAVY),
        ("import kvoracle.model.adapters.impl", HEAVY | {"hypothesis", "typer", "rich"}),
        ("from kvoracle.model.check import check", HEAVY | {"hypothesis", "typer", "rich"}),
        ("import kvoracle.model.shrink, kvoracle.model.walk", HEAVY | {"hypothesis", "numpy"}),
        ("import kvoracle.model.trace", HEAVY | {"hypothesis", "numpy", "typer", "rich"}),
        ("import kvoracle.impl", HEAVY | {"hypothesis", "msgspec", "typer", "rich"}),
    ],
)
def test_an_import_does_not_load_what_it_does_not_need(statement, unwanted):
    assert modules_loaded_by(statement) & unwanted == set()


@pytest.mark.parametrize("path", CODE + TESTS, ids=short)
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    limit = FILE_LINES_MAX if path in CODE else 2 * FILE_LINES_MAX
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert long == []
    assert len(text.splitlines()) <= limit


def text_files():
    """The tracked text files; every file that is ours where this is no git checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, cwd=ROOT, check=False)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    paths = [ROOT / name for name in names] if names else ROOT.rglob("*")
    for path in paths:
        if path.is_symlink() or not path.is_file() or NOT_OURS.search(short(path)):
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_no_file_names_a_path_of_one_machine():
    folders = ["work", "root", "Users", "home", r"tmp/envs", r"var/folders", "mnt", "opt/homebrew"]
    machine_path = re.compile(rf"(?<![\w.:/~-])/(?:{'|'.join(folders)})/[\w.]")

    found = [
        f"{short(path)}:{number}: {line.strip()[:100]}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        if machine_path.search(line)
    ]

    assert found == []
