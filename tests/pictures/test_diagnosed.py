"""Three lines by default; the evidence folds out in HTML, and in text where it is asked for."""
from __future__ import annotations

import dataclasses

from jupyter_gpumem.model import DeviceFault, Diagnosis, Fact, Fault, Origin, OutOfMemory, Reason, Tensor
from jupyter_gpumem.pictures import html, text

MIB = 1 << 20
FOUND = Diagnosis(
    error=OutOfMemory("torch", "cuda:0", 38 * MIB, free=22 * MIB, text="CUDA out of memory. Tried <b>it</b>"),
    origin=Origin("cell [5], line 1 in step()", "loss = net(x)", (("x", Tensor("Tensor", (64, 3), "float32", 768)),)),
    reason=Reason.STEP,
    cause="this step holds too much",
    cure="a smaller batch",
    code="%%gpufree --retry 3 --halve batch_size",
    facts=(Fact("free at that moment", 22 * MIB), Fact("others on the device")),
    contributing=((Reason.OTHERS, "others hold 5.0 MiB"),),
)


def test_three_lines():
    lines = text.render(FOUND).splitlines()
    assert sum(not line.startswith("    ") for line in lines) == 3, "the others continue one"
    said = " ".join(text.render(FOUND).split())
    assert "out of memory on cuda:0: 38.0 MiB asked, 22.0 MiB free; cell [5], line 1 in step(): loss = net(x) (x 64×3 float32)" in said
    assert "cause: this step holds too much" in said
    assert "cure: a smaller batch → %%gpufree --retry 3 --halve batch_size" in said
    assert "evidence" not in said.lower()


def test_the_evidence_where_it_is_asked_for():
    said = " ".join(text.render(dataclasses.replace(FOUND, full=True)).split())
    for fact in ("free at that moment 22.0 MiB", "others on the device unknown", "also: others hold 5.0 MiB", "the error says: CUDA"):
        assert fact in said, fact


def test_html_folds_it_in():
    page = html.render(FOUND)
    assert "<details><summary>Evidence</summary>" in page
    assert page.index("<summary>") < page.index("free at that moment") < page.index("</details>")
    assert "<b>it</b>" not in page
    assert "<details open>" in html.render(dataclasses.replace(FOUND, full=True))


def test_what_is_not_known_is_not_said():
    bare = Diagnosis(OutOfMemory("python", None), Origin(""), Reason.UNSURE, "not sure", "look", "%gpumem")
    assert "gpumem: out of memory: asked for an untold size" in text.render(bare)


def test_rounded_sizes_are_about():
    rounded = dataclasses.replace(FOUND, error=dataclasses.replace(FOUND.error, rounding=20 * MIB))
    assert "about 38.0 MiB asked" in text.render(rounded)


def test_a_fault_in_two_lines():
    fault = DeviceFault(Fault.ASSERT, "CUDA error: device-side assert triggered", "only a restart helps", dead=True)
    lines = text.render(fault).splitlines()
    assert len(lines) == 2
    assert "not out of memory, but device-side assert" in lines[0]
    assert "only a restart helps" in lines[1]
    assert "not out of memory" in html.render(fault)
