"""Process ids of a container."""
from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from jupyter_gpumem.devices import namespaces


@pytest.mark.parametrize(("inode", "first"), [(4026531836, True), (4026532001, False)])
def test_the_first_namespace_is_known_by_its_inode(monkeypatch, inode, first):
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_ino=inode))
    assert namespaces.in_first_pid_namespace() is first


def test_elsewhere_nobody_can_tell(monkeypatch):
    def missing(path):
        raise OSError

    monkeypatch.setattr(os, "stat", missing)
    assert namespaces.in_first_pid_namespace() is None
