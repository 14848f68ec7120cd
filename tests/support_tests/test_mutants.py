"""A mutant that sets a name nobody reads would change nothing, and seem to have been survived."""

import ast
import inspect
from types import ModuleType

import pytest

from tests.support import delivery_mutants, job_mutants, mutants


@pytest.mark.parametrize(
    "module", [mutants, job_mutants, delivery_mutants], ids=lambda m: m.__name__
)
def test_every_name_that_a_mutant_sets_is_there(module: ModuleType) -> None:
    targets = [
        (getattr(module, target.value.id, None), target.attr)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    ]
    replaced = [(owner, name) for owner, name in targets if inspect.ismodule(owner)]
    assert replaced
    # A verb that has the name of its module: what is set on it, nobody reads.
    assert [name for owner, name in targets if inspect.isfunction(owner)] == []
    assert [name for owner, name in replaced if not hasattr(owner, name)] == []
