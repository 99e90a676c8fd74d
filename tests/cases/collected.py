"""All cases, in a fixed order."""
from __future__ import annotations

from itertools import chain

import caches
import containers
import cycles
import graphs
import hooks
import iterators
import more
import names
import outputs
import registries
import running
import tracebacks
import views

_MODULES = (caches, containers, cycles, graphs, hooks, iterators, more, names, outputs, registries, running, tracebacks, views)
CASES = tuple(chain.from_iterable(module.CASES for module in _MODULES))
