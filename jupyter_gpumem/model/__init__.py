"""Records of what was seen and done: frozen, plain, and without a reference to any live object.

Sizes are ``int`` bytes. ``None`` means "not available here", which is never the same as 0.
"""
from __future__ import annotations

from jupyter_gpumem.model.account import Account, Block, Entry, Segment, Sum
from jupyter_gpumem.model.advice import Advice, Checkup
from jupyter_gpumem.model.cleaning import Action, CellUse, Freed, Notice, Plan, Report, Step
from jupyter_gpumem.model.forecast import BatchPeak, DevicePeak, Forecast, PeakOperation
from jupyter_gpumem.model.growth import Change, Graph, GraphNode, Growth, Leaks, Timeline, Trend, Verdict
from jupyter_gpumem.model.holdings import Cause, Holder, Holding, Names, NameUse, ObjectUse, Snapshot, Tensor, Why
from jupyter_gpumem.model.machine import Allocator, CellRun, Device, DeviceReading, Owner, Process, Sample, Shares
from jupyter_gpumem.model.oom import Baseline, DeviceFault, Diagnosis, Fact, Fault, Origin, OutOfMemory, Reason
from jupyter_gpumem.model.parking import Direction, Moved, ParkedName, Parking
from jupyter_gpumem.model.plain import to_json

__all__ = [
    "Account",
    "Action",
    "Advice",
    "Allocator",
    "Baseline",
    "BatchPeak",
    "Block",
    "Cause",
    "CellRun",
    "CellUse",
    "Change",
    "Checkup",
    "Device",
    "DeviceFault",
    "DevicePeak",
    "DeviceReading",
    "Diagnosis",
    "Direction",
    "Entry",
    "Fact",
    "Fault",
    "Forecast",
    "Freed",
    "Graph",
    "GraphNode",
    "Growth",
    "Holder",
    "Holding",
    "Leaks",
    "Moved",
    "NameUse",
    "Names",
    "Notice",
    "ObjectUse",
    "Origin",
    "OutOfMemory",
    "Owner",
    "ParkedName",
    "Parking",
    "PeakOperation",
    "Plan",
    "Process",
    "Reason",
    "Report",
    "Sample",
    "Segment",
    "Shares",
    "Snapshot",
    "Step",
    "Sum",
    "Tensor",
    "Timeline",
    "Trend",
    "Verdict",
    "Why",
    "to_json",
]
