"""The fixture ``no_gpu_leak``. pytest imports this module at its start: everything else waits for a test."""
from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest

if TYPE_CHECKING:
    from jupyter_gpumem.actions.leaks import LeakCheck

_passed: WeakSet[pytest.Item] = WeakSet()
"""The tests that have passed. Not pytest's stash: a plugin must not end a pytest that is too old to have one."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Remember whether the test itself has passed: a failure of its own is not to be covered by another."""
    outcome = yield
    if call.when == "call" and outcome.get_result().passed:
        _passed.add(item)


@pytest.fixture
def no_gpu_leak(request: pytest.FixtureRequest) -> Iterator[LeakCheck]:
    """Fail a test that leaks memory of the accelerators, or of the host where there is none.

    A test that calls ``no_gpu_leak.round()`` after each of four or more rounds of the same work is judged by what
    grows from round to round. Any other is judged by what it leaves behind that no name keeps, after a
    ``gc.collect()``. Nothing is judged where the test itself has not passed.
    """
    from jupyter_gpumem import session
    from jupyter_gpumem.actions.leaks import assert_no_leak

    check = assert_no_leak(session.current())
    check.title = request.node.name
    check.begin()
    yield check
    if request.node in _passed:
        check.end()
