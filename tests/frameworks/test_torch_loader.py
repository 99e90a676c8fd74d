"""Whatever the resizes, an epoch has the samples of the plain loader in its order, and draws what that draws."""
from __future__ import annotations

import random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_loader

few = settings(max_examples=25, deadline=None, phases=[Phase.generate])


class Numbers(Dataset):
    """Sample i is i; with ``noisy`` loading it draws from the global generator, as an augmentation does."""

    def __init__(self, n, noisy=False, broken=()):
        self.n, self.noisy, self.broken = n, noisy, broken

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.noisy:
            torch.rand(1)
        if index in self.broken:
            raise ZeroDivisionError(index)
        return index


class Drawing(Sampler):
    """Draws an index only when it is asked for one, from the global generators."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        for _ in range(self.n):
            yield int(torch.randint(self.n, ())) if random.random() < 0.5 else 0


def samples(batch):
    return batch.tolist()


def epoch(loader):
    torch.manual_seed(11)
    random.seed(11)
    seen = [samples(batch) for batch in loader]
    return seen, torch.get_rng_state().tolist(), random.getstate()


def flat(batches):
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["sequential", "shuffle", "drawing", "replacement", "generator"])
def test_without_a_resize_nothing_differs(kind, drop_last, noisy):
    def make():
        data = Numbers(23, noisy)
        options = {"batch_size": 5, "drop_last": drop_last}
        if kind == "shuffle":
            return DataLoader(data, shuffle=True, **options)
        if kind == "drawing":
            return DataLoader(data, sampler=Drawing(23), **options)
        if kind == "replacement":
            return DataLoader(data, sampler=RandomSampler(data, replacement=True, num_samples=70), **options)
        if kind == "generator":
            return DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3), **options)
        return DataLoader(data, **options)

    plain, ours = make(), torch_loader.resizable(make())
    for _ in range(2):
        assert len(ours) == len(plain)
        assert epoch(ours) == epoch(plain)


@few
@given(st.data())
def test_any_resizes_give_the_same_samples_in_the_same_order(data):
    n = data.draw(st.integers(1, 40))
    noisy = data.draw(st.booleans())
    shuffle = data.draw(st.booleans())
    loader = DataLoader(Numbers(n, noisy), batch_size=data.draw(st.integers(1, 12)), shuffle=shuffle)
    expected, _, _ = epoch(DataLoader(Numbers(n, noisy), batch_size=4, shuffle=shuffle))

    batches = torch_loader.resizable(loader)
    torch.manual_seed(11)
    seen, given, size = [], 0, batches.batch_size
    for batch in batches:
        given += 1
        assert len(batch) <= size
        choice = data.draw(st.sampled_from(["no", "no", "resize", "again", "twice"]))
        drawn = torch.get_rng_state()
        if choice == "no" or (choice != "resize" and given > 60):
            seen += samples(batch)
            continue
        if choice == "resize":
            seen += samples(batch)
        size = data.draw(st.integers(1, 12))
        batches.resize(size, again=choice != "resize")
        if choice == "twice":
            size = data.draw(st.integers(1, 12))
            batches.resize(size, again=True)
        assert torch.equal(torch.get_rng_state(), drawn), "a resize draws nothing"
    assert seen == flat(expected)
    assert batches.batch_size == size


def test_a_resize_draws_nothing_even_when_the_next_batch_is_loaded():
    def end(resize):
        torch.manual_seed(0)
        batches = torch_loader.resizable(DataLoader(Numbers(20), batch_size=4, shuffle=True))
        for _ in batches:
            if resize and batches.batch_size == 4:
                batches.resize(2)
        return torch.rand(1).item()

    assert end(True) == end(False)


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_counts_the_batches_that_a_loop_gets(drop_last):
    batches = torch_loader.resizable(DataLoader(Numbers(23), batch_size=4, drop_last=drop_last))
    count = 0
    lengths = []
    for _ in batches:
        count += 1
        if count == 2:
            batches.resize(3)
        if count == 4:
            batches.resize(2, again=True)
        lengths.append(len(batches))
    assert lengths[-1] == count
    assert lengths[4:] == [count] * len(lengths[4:])
    assert len(batches) == (23 // 2 if drop_last else 12), "the next epoch has the new size"


def test_what_drop_last_would_drop_is_given_when_a_smaller_size_has_room_for_it():
    batches = torch_loader.resizable(DataLoader(Numbers(10), batch_size=8, drop_last=True))
    seen = []
    for batch in batches:
        seen.append(samples(batch))
        batches.resize(2)
    assert flat(seen) == list(range(10))
    assert list(map(len, seen)) == [8, 2]


def test_a_batch_that_cannot_be_loaded_is_lost_as_with_the_plain_loader():
    batches = torch_loader.resizable(DataLoader(Numbers(10, broken=[3]), batch_size=2))
    iterator = iter(batches)
    assert samples(next(iterator)) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    batches.resize(3)
    assert samples(next(iterator)) == [4, 5, 6]


def test_no_batch_is_kept_and_an_abandoned_epoch_is_over():
    import gc
    import weakref

    batches = torch_loader.resizable(DataLoader(Numbers(10), batch_size=2))
    for batch in batches:
        last = weakref.ref(batch)
        del batch
        gc.collect()
        assert last() is None
        break
    assert flat(samples(batch) for batch in batches) == list(range(10))


class Workers(Numbers):
    """Samples with the seed of their workers, and what ``worker_init_fn`` has done there."""

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return index, info.seed - info.id, self.n


class Started:
    """A ``worker_init_fn`` that can be seen in the samples."""

    def __call__(self, worker):
        torch.utils.data.get_worker_info().dataset.n = 1000


def as_rows(pairs):
    return pairs


OPTIONS = {"num_workers": 2, "batch_size": 4, "collate_fn": as_rows, "worker_init_fn": Started(), "prefetch_factor": 3}


def processes(batches):
    return list(batches._running()._iterator._workers)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("in_order", [True, False])
def test_workers_are_carried_over_and_end(persistent, in_order):
    torch.manual_seed(5)
    data = Workers(40)
    loader = DataLoader(data, shuffle=True, persistent_workers=persistent, in_order=in_order, **OPTIONS)
    batches = torch_loader.resizable(loader)
    seen, seeds, old, drawn = [], set(), [], []
    for number, batch in enumerate(batches):
        seeds |= {row[1] for row in batch}
        assert {row[2] for row in batch} == {1000}
        if number in (2, 4):
            old += processes(batches)
            state = torch.get_rng_state()
            batches.resize(3 if number == 2 else 5, again=number == 2)
            assert torch.equal(torch.get_rng_state(), state)
            if number == 2:
                continue
        seen += [row[0] for row in batch]
        drawn.append(torch.get_rng_state().tolist())
    assert sorted(seen) == list(range(40))
    if in_order:
        torch.manual_seed(5)
        plain = [row[0] for batch in DataLoader(data, shuffle=True, **OPTIONS) for row in batch]
        assert seen == plain
    assert all(state == drawn[0] for state in drawn)
    assert len(old) == 4 and not any(process.is_alive() for process in old)
    assert all(process.exitcode == 0 for process in old), "they ended by themselves"
    assert len(seeds) == 3, "each start of workers has its own seed"


def test_whatever_the_loader_was_made_with_is_carried_over():
    options = {**OPTIONS, "timeout": 7, "pin_memory": True, "multiprocessing_context": "fork", "drop_last": True}
    loader = DataLoader(Workers(8), shuffle=True, generator=torch.Generator(), **options)
    batches = torch_loader.resizable(loader)
    iterator = iter(batches)
    next(iterator)
    made, plain = vars(iterator._copy), vars(loader)
    assert {name for name in plain if made[name] is not plain[name]} == {"batch_sampler"}
    batches.resize(2)
    next(iterator)
    made = vars(iterator._copy)
    assert {name for name in plain if made[name] is not plain[name]} == {"batch_size", "batch_sampler", "generator"}
    assert loader.generator.get_state().tolist() != torch.Generator().get_state().tolist(), "drawn from once, at the start"


def test_persistent_workers_outlive_an_epoch():
    batches = torch_loader.resizable(DataLoader(Workers(8), persistent_workers=True, **OPTIONS))
    list(batches)
    first = {process.pid for process in batches.kept._iterator._workers}
    assert [row[0] for batch in batches for row in batch] == list(range(8))
    assert {process.pid for process in batches.kept._iterator._workers} == first
    old = batches.kept._iterator._workers
    batches.resize(2)
    assert not any(process.is_alive() for process in old)
    assert [len(batch) for batch in batches] == [2] * 4


def test_the_loader_itself_is_left_as_it_was():
    loader = DataLoader(Numbers(10), batch_size=4, shuffle=True)
    before = dict(vars(loader))
    batches = torch_loader.resizable(loader)
    for _ in batches:
        batches.resize(2)
    assert vars(loader) == before
    assert (batches.dataset, batches.sampler) == (loader.dataset, loader.sampler)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Own(DataLoader):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataLoader(Stream(), batch_size=2), "IterableDataset has no indices"),
        (lambda: DataLoader(Numbers(4), batch_sampler=BatchSampler(SequentialSampler(range(4)), 2, False)), "batch_sampler of its own"),
        (lambda: DataLoader(Numbers(4), batch_size=None), "makes no batches"),
        (lambda: Own(Numbers(4), batch_size=2), "an __iter__ of its own"),
        (lambda: iter(DataLoader(Numbers(4), batch_size=2)), "the DataLoader itself"),
    ],
)
def test_what_cannot_be_resized_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        torch_loader.resizable(make())


@pytest.mark.parametrize("size", [0, -1, 2.0, "2", None, True])
def test_a_size_is_a_number_from_1_on(size):
    batches = torch_loader.resizable(DataLoader(Numbers(4), batch_size=2))
    with pytest.raises(InputError, match="whole number from 1 on"):
        batches.resize(size)
    assert batches.batch_size == 2


def test_again_needs_a_batch():
    batches = torch_loader.resizable(DataLoader(Numbers(4), batch_size=2))
    with pytest.raises(InputError, match="inside the loop"):
        batches.resize(1, again=True)
    iterator = iter(batches)
    with pytest.raises(InputError, match="inside the loop"):
        batches.resize(1, again=True)
    assert samples(next(iterator)) == [0, 1]
