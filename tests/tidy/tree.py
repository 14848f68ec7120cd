"""The source as trees: what the tidy rules look at."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("kernel", "console")


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """Every Python file of these folders, as paths below the root; migrations are left out."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return tuple(
        sorted(p.relative_to(ROOT) for p in found if "migrations" not in p.relative_to(ROOT).parts)
    )


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Full names of what a file imports, with the statement."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """(name of the called function or method, the call) in this node."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            if isinstance(one.func, ast.Attribute):
                yield one.func.attr, one
            elif isinstance(one.func, ast.Name):
                yield one.func.id, one


def at(path: Path, node: ast.AST) -> str:
    return f"{path}:{getattr(node, 'lineno', 0)}"
