"""A real JupyterLab in a real browser, with real kernels on simulated GPUs."""
from __future__ import annotations

import json
import os
import re
import sys
import urllib.request

import pytest

pytest.importorskip("jupyterlab")
pytest.importorskip("playwright")

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, os.path.dirname(__file__))
from labserver import CHROMIUM_ARGS, LabServer, Page, chromium_path

EXTENSION = "jupyter-gpumem"
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def chromium():
    path = chromium_path()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine")
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory, compiler):
    """A JupyterLab whose kernel ``simgpu`` has two GPUs of 2 GiB, and ``plain`` none."""
    from simgpu import kernel as simulated

    home = tmp_path_factory.mktemp("lab")
    simulated.write_kernelspec(home / "data", home / "machine")
    server = LabServer(home)
    assert any(one["name"] == EXTENSION for one in federated(server)), "the sidebar is not installed: make lab-build"
    yield server
    server.stop()


def federated(server):
    """The prebuilt extensions that the page of a server loads."""
    html = urllib.request.urlopen(server.url + "/lab", timeout=20).read().decode()
    return json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', html, re.S)[1])["federated_extensions"]


@pytest.fixture
def open_page(chromium):
    """``open_page(server, path)`` → a :class:`Page`; what the console says against us fails the test."""
    opened = []

    def open_(server, path, **options):
        page = Page(chromium, server, path, **options)
        opened.append(page)
        return page

    yield open_
    faults = [fault for page in opened for fault in page.faults]
    for page in opened:
        page.context.close()
    assert not faults, faults
