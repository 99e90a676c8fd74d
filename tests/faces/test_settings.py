"""Settings by traitlets."""
from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_gpumem.faces.settings import GPUMem


def test_a_configuration_file_sets_them():
    settings = GPUMem(config=Config(GPUMem={"every_cell": True, "keep": ["model"], "device": "cpu"}))
    assert (settings.every_cell, settings.keep, settings.device) == (True, ["model"], "cpu")


@pytest.mark.parametrize(("name", "value"), [("output_share", 0), ("search_seconds", -1), ("keep", 3), ("every_cell", "yes")])
def test_wrong_values_are_refused(name, value):
    settings = GPUMem()
    with pytest.raises(TraitError):
        setattr(settings, name, value)


def test_the_magic_lists_them(shell, capsys):
    shell.run_cell("%load_ext jupyter_gpumem\n%config GPUMem")
    assert "GPUMem.output_share" in capsys.readouterr().out
