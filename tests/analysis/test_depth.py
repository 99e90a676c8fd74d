"""One object in depth: each storage once, in the first place that has it, and the parts sum to the whole."""
from __future__ import annotations

import functools
import gc
import queue
import random
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from jupyter_gpumem.analysis.depth import describe
from jupyter_gpumem.analysis.objects import use_of


def listed(parts, above=""):
    """Path of each part → its bytes."""
    found = {}
    for part in parts:
        found[above + part.name] = part.nbytes
        found |= listed(part.parts, f"{above}{part.name} / ")
    return found


def check(parts, nbytes):
    assert sum(part.nbytes for part in parts) == nbytes
    for part in parts:
        if part.parts:
            check(part.parts, part.nbytes)


def opened(value, shell=None, name="x"):
    use = describe(name, value, ["cpu"], shell)
    assert use.nbytes == use_of(name, value, ["cpu"]).nbytes
    check(use.parts, use.nbytes)
    return listed(use.parts)


# ---------------------------------------------------------------- modules
def test_a_module_by_submodule_with_parameters_gradients_and_buffers():
    net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    net(torch.ones(4, 8)).sum().backward()
    found = opened(net)
    assert (found[".0"], found[".0 / parameters / .weight"], found[".0 / gradients / .weight"]) == (512, 256, 256)
    assert (found[".1 / parameters"], found[".1 / gradients"], found[".1 / buffers"]) == (64, 64, 72)
    assert found[".1 / buffers / .num_batches_tracked"] == 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        self.features = self.first(x)
        return self.last(self.features)


def test_outputs_that_hooks_and_attributes_keep():
    net, store = Net(), {}

    def keep(module, inputs, output):
        store["out"] = output.detach().clone()

    net.last.register_forward_hook(keep)
    net(torch.ones(100, 8))
    found = opened(net)
    assert found[".last / kept by hooks / keep / closure 'store' / ['out']"] == 3200
    assert found[".features / storage"] == 3200
    assert found[".first / parameters"] == 256, "not its graph's"


def test_tied_weights_count_once_and_say_where():
    net = Net()
    net.last.weight = net.first.weight
    use = describe("net", net, ["cpu"])
    assert use.nbytes == 256
    (tied,) = [part for part in use.parts if part.name == ".last"]
    assert tied.parts[0].parts[0].kind == "Parameter, counted at net.first.weight"


# ---------------------------------------------------------------- optimizers
def trained(net):
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    return optimizer


def test_an_optimizer_by_state_and_by_the_names_of_parameters(shell):
    shell.user_ns["net"] = net = Net()
    optimizer = shell.user_ns["opt"] = trained(net)
    del net.features
    found = opened(optimizer, shell)
    assert found["state[…]['exp_avg']"] == found["param_groups (shared with the model)"] == found["gradients of these"] == 512
    assert found["state[…]['exp_avg'] / net.first.weight"] == 256
    assert found["param_groups (shared with the model) / net.last.weight"] == 256


def test_parameters_without_a_name_have_a_number_and_a_shape(shell):
    shell.user_ns["opt"] = optimizer = trained(nn.Linear(8, 3))
    found = opened(optimizer, shell)
    assert found["state[…]['exp_avg_sq'] / param 0 (3×8)"] == 96
    assert found["state[…]['exp_avg_sq'] / param 1 (3)"] == 12


# ---------------------------------------------------------------- tensors
def test_a_loss_by_the_operations_of_its_graph_largest_first(shell):
    shell.run_cell("import torch\nw = torch.ones(100, requires_grad=True)\nloss = (w * 2).exp().sum() + (w[:10] * w[:10]).sum()")
    use = describe("loss", shell.user_ns["loss"], ["cpu"], shell)
    check(use.parts, use.nbytes)
    (graph,) = [part for part in use.parts if part.name.startswith("graph (")]
    assert [(part.name, part.nbytes) for part in graph.parts[:2]] in (
        [("w", 400), ("ExpBackward0", 400)], [("ExpBackward0", 400), ("w", 400)],
    )
    assert [part.nbytes for part in graph.parts] == sorted((part.nbytes for part in graph.parts), reverse=True)
    assert listed(use.parts)["storage"] == 4


def test_a_tensor_with_its_gradient_and_a_bare_one():
    leaf = torch.ones(100, requires_grad=True)
    assert opened(leaf) == {"storage": 400}
    leaf.grad = torch.zeros(100)
    assert opened(leaf) == {"storage": 400, ".grad": 400}


# ---------------------------------------------------------------- data
def test_datasets_and_loaders():
    data = TensorDataset(torch.zeros(100, 10), torch.zeros(100))
    loader = DataLoader(Subset(data, range(50)), batch_size=10)
    found = opened(loader)
    assert found[".dataset / .dataset / .tensors / [0]"] == 4000
    assert opened(iter(loader))["._dataset / .dataset / .tensors / [1]"] == 400


def test_batches_that_an_iterator_has_ready():
    class Prefetching:
        def __init__(self):
            self._task_info = {3: (0, [torch.zeros(10)])}
            self._data_queue = queue.Queue()
            self._data_queue.put((4, [torch.zeros(20)]))

    use = describe("it", Prefetching(), ["cpu"])
    assert [(part.name, part.nbytes) for part in use.parts] == [("prefetched batches", 80), ("prefetched batches", 40)]


# ---------------------------------------------------------------- any other object
class Slotted:
    __slots__ = ("big", "unset")


def test_containers_by_item_instances_by_attribute_and_slot():
    slotted = Slotted()
    slotted.big = torch.zeros(10)
    found = opened({"a": torch.zeros(2), "n": 3, "deep": [torch.zeros(3), (slotted,)]})
    assert (found["['a']"], found["['deep'] / [0]"], found["['deep'] / [1] / [0] / .big"]) == (8, 12, 40)


def test_what_is_in_a_container_twice_counts_once():
    tensor = torch.zeros(1000)
    assert opened([tensor, tensor[:10], [tensor]]) == {"[0]": 4000}


def test_what_contains_itself_is_opened_once():
    ring = [torch.zeros(10), torch.zeros(20)]
    ring.append(ring)
    assert opened(ring) == {"[1]": 80, "[0]": 40}


def test_what_can_only_be_searched():
    waiting = (x for x in [torch.zeros(7)])
    bound = functools.partial(print, torch.zeros(5))
    found = opened([waiting, bound])
    assert (found["[0]"], found["[1] / .args / [0]"]) == (28, 20)


def test_deep_nesting_is_not_recursion():
    chain = [torch.zeros(5)]
    for _ in range(5000):
        chain = [chain]
    assert max(opened(chain).values()) == 20


def random_object(rng, made):
    def tensor():
        one = rng.choice([torch.zeros(rng.randrange(1, 50)), *made[-3:]])
        made.append(one)
        return one

    def grow(depth):
        kind = rng.choice(["tensor", "list", "dict", "net", "loss", "view", "closure", "twice"] if depth else ["tensor"])
        if kind in ("list", "dict"):
            inner = [grow(depth - 1) for _ in range(rng.randrange(4))]
            return inner if kind == "list" else dict(enumerate(inner))
        if kind == "net":
            net = nn.Linear(rng.randrange(1, 5), 3)
            net.kept = grow(depth - 1)
            return net
        if kind == "loss":
            return (torch.ones(rng.randrange(1, 30), requires_grad=True) * 2).exp().sum()
        if kind == "view":
            return tensor()[:1]
        if kind == "closure":
            held = grow(depth - 1)
            return lambda: held
        if kind == "twice":
            return [grow(depth - 1)] * 2
        return tensor()

    return grow(4)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_anything_sum_to_the_whole(seed):
    made = []
    opened([random_object(random.Random(seed), made) for _ in range(3)])


def test_hostile_objects_run_nothing():
    class Bad:
        def __getattribute__(self, name):
            raise SystemExit("ran")

        __eq__ = __hash__ = __len__ = __repr__ = __bool__ = __iter__ = lambda self, *a: 1 / 0
        __class__ = property(lambda self: 1 / 0)

    class BadList(list, Bad):
        pass

    bad = Bad()
    object.__getattribute__(bad, "__dict__")["kept"] = BadList([torch.zeros(10)])
    assert opened([bad])["[0] / .kept / [0]"] == 40


def test_looking_leaves_nothing():
    net, store = Net(), []
    net.last.register_forward_hook(lambda m, i, o: store.append(o))
    optimizer = trained(net)
    holder = [net, optimizer, net(torch.ones(3, 8)).sum()]
    for _ in range(3):
        describe("holder", holder)
    gc.collect()
    before = [sys.getrefcount(net), sys.getrefcount(store[0]), sys.getrefcount(optimizer)], len(gc.get_objects())
    for _ in range(20):
        describe("holder", holder)
    gc.collect()
    after = [sys.getrefcount(net), sys.getrefcount(store[0]), sys.getrefcount(optimizer)], len(gc.get_objects())
    assert after[0] == before[0]
    assert after[1] - before[1] < 10
