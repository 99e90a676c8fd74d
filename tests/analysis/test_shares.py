"""A device's memory is divided without a byte twice or lost."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpumem.analysis.shares import divide
from jupyter_gpumem.model import Device, Owner, Process

GIB = 2**30
OWNERS = {
    1: Owner(1, role="kernel", kernel="mine"),
    2: Owner(2, role="child", kernel="mine"),
    3: Owner(3, role="kernel", kernel="another"),
    4: Owner(4, role="orphan", kernel=None),
    5: Owner(5, role="other"),
    6: Owner(6, role="hidden"),
    7: Owner(7, role="foreign"),
}


def gpu(*processes, used=10 * GIB, total=16 * GIB, told=True):
    free = None if used is None else total - used
    listed = tuple(Process(pid, size, own=pid == 1) for pid, size in processes) if told else None
    return Device("GPU-a", "gpu", 0, "GPU", total, used, free, processes=listed)


def test_kernel_and_children_are_this_notebook_others_are_apart():
    shares = divide(gpu((1, GIB), (2, GIB), (3, 2 * GIB), (4, GIB), (5, 3 * GIB)), OWNERS, OWNERS[1])
    assert shares == (2 * GIB, 3 * GIB, 3 * GIB, 2 * GIB, 6 * GIB)


def test_hidden_and_foreign_processes_are_others():
    assert divide(gpu((6, GIB), (7, GIB)), OWNERS, OWNERS[1]).others == 2 * GIB


def test_a_process_that_nobody_knows_is_another():
    assert divide(gpu((99, GIB)), OWNERS, OWNERS[1]).others == GIB


def test_where_the_driver_tells_no_process_nothing_is_known_but_the_whole():
    shares = divide(gpu(told=False), OWNERS, OWNERS[1])
    assert shares == (None, None, None, 10 * GIB, 6 * GIB)


def test_the_allocator_stands_in_where_the_driver_is_silent():
    assert divide(gpu(told=False), OWNERS, OWNERS[1], reserved=4 * GIB)[:4] == (4 * GIB, None, None, 6 * GIB)
    assert divide(gpu((1, None), (3, None)), OWNERS, OWNERS[1], reserved=4 * GIB)[:4] == (4 * GIB, 0, 0, 6 * GIB)


def test_the_drivers_word_is_better_than_the_allocators():
    assert divide(gpu((1, 5 * GIB)), OWNERS, OWNERS[1], reserved=4 * GIB).own == 5 * GIB


def test_without_a_kernel_of_its_own_a_process_is_still_this_one():
    shares = divide(gpu((1, GIB), (3, GIB)), {**OWNERS, 1: Owner(1, role="other")}, Owner(1, role="other"))
    assert (shares.own, shares.notebooks) == (GIB, GIB)


def test_two_processes_without_a_kernel_are_not_the_same_notebook():
    shares = divide(gpu((4, GIB)), OWNERS, Owner(1, role="other"))
    assert (shares.own, shares.notebooks) == (0, GIB)


def test_unknown_use_is_unknown():
    assert divide(gpu((1, GIB), used=None), OWNERS, OWNERS[1]).unattributed is None


def test_a_list_that_says_more_than_the_total_leaves_nothing_negative():
    assert divide(gpu((1, 8 * GIB), (3, 8 * GIB)), OWNERS, OWNERS[1]).unattributed == 0


@given(
    st.dictionaries(st.sampled_from(list(OWNERS)), st.none() | st.integers(0, GIB), max_size=7),
    st.none() | st.integers(7 * GIB, 16 * GIB),
    st.booleans(),
)
def test_shares_and_free_make_up_the_total(processes, used, told):
    device = gpu(*processes.items(), used=used, told=told)
    shares = divide(device, OWNERS, OWNERS[1])
    assert all(share is None or share >= 0 for share in shares)
    if used is not None:
        assert sum(share or 0 for share in shares) == device.total


@pytest.mark.parametrize("reserved", [0, None])
def test_an_allocator_without_memory_claims_nothing(reserved):
    assert divide(gpu((3, GIB)), OWNERS, OWNERS[1], reserved=reserved).own == 0
