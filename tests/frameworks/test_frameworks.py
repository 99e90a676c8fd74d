"""Frameworks are met only where the user has imported them."""
from __future__ import annotations

import sys

from jupyter_gpumem import frameworks


def test_the_module_is_ours_and_the_framework_is_the_real_one():
    import torch

    assert "site-packages" in torch.__file__
    assert [framework.name for framework in frameworks.loaded()] == ["torch"]
    assert sys.modules["jupyter_gpumem.frameworks.torch"].torch is torch


def test_nothing_is_imported_where_there_is_nothing(run_on):
    got = run_on("none", "from jupyter_gpumem import frameworks; frameworks.loaded(); print('torch' in sys.modules)")
    assert got.out.strip() == "False"
