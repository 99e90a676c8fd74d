"""Objects that hold more than they show."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="trial_results_with_models",
        source="maxpumperla/hyperas#16",
        story="after some fifty trials of a parameter search nothing is left of the memory: each trial's result dictionary has the trained model",
        cells=(
            """\
import torch
def objective(index):
    model = torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False, device=DEVICE))
    tag_tensor(f"trial{index}", model[0].weight)
    return {"loss": 1.0 / (index + 1), "status": "ok", "model": model}
trials = [objective(index) for index in range(2)]
best = min(trials, key=lambda trial: trial["loss"])["loss"]
""",
        ),
        kept=frozenset({"trial0", "trial1"}),
        holders={"trial0": ("trials", "model",), "trial1": ("trials", "model",)},
    ),
    Case(
        name="key_value_cache_of_output",
        source="huggingface/transformers#31717",
        story="text is generated in a loop; the decoded strings are small, what stays on the device is not: the last output object has the key-value cache besides the tokens",
        cells=(
            """\
import dataclasses
@dataclasses.dataclass
class Output:
    sequences: object
    past_key_values: tuple = ()
def generate():
    return Output(block("tokens"), ((block("keys"), block("values")),))
out = generate()
text = str(len(out.sequences))
""",
        ),
        kept=frozenset({"keys", "values", "tokens"}),
        holders={"keys": ("out", "past_key_values",), "values": ("out", "past_key_values",), "tokens": ("out", "sequences",)},
    ),
    Case(
        name="swa_copy",
        source="pytorch/pytorch#35032",
        story="stochastic weight averaging runs out of memory in the last epochs, on a model that trained before: the averaged model is a deep copy on the same device; the trained model is deleted, the copy is not",
        cells=(
            """\
import torch
from torch.optim.swa_utils import AveragedModel
model = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("trained", model.weight)
averaged = AveragedModel(model)
tag_tensor("copy", averaged.module.weight)
averaged.update_parameters(model)
""",
            """\
del model
""",
        ),
        kept=frozenset({"copy"}),
        holders={"copy": ("averaged", "module.weight",)},
    ),
    Case(
        name="best_weights_kept",
        source="thunlp/OpenKE#131",
        story="the best weights are remembered during training; deleting the model frees only part of it: the remembered dictionaries are on the device: one is a copy, one shares the deleted model's storage",
        cells=(
            """\
import torch
model = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("live", model.weight)
best_state = {name: value.clone() for name, value in model.state_dict().items()}
tag_tensor("copy", best_state["weight"])
last_state = model.state_dict()
del model
""",
        ),
        kept=frozenset({"live", "copy"}),
        holders={"live": ("last_state", "weight",), "copy": ("best_state", "weight",)},
    ),
    Case(
        name="loaded_checkpoint_left",
        source="karpathy/nanoGPT#533",
        story="right after resuming from a checkpoint twice the model's size is in use: the loaded dictionary is still a name, and its optimizer part too",
        cells=(
            """\
import io, torch
def saved():
    net, file = torch.nn.Linear(512, 512, bias=False), io.BytesIO()
    torch.save({"model": net.state_dict(), "step": 3}, file)
    file.seek(0)
    return file
def load():
    loaded = torch.load(saved(), map_location="cpu")
    loaded["model"] = {name: value.to(DEVICE) for name, value in loaded["model"].items()}
    return loaded
checkpoint = load()
model = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("model", model.weight)
tag_tensor("loaded", checkpoint["model"]["weight"])
""",
            """\
model.load_state_dict(load()["model"]); tag_tensor("shown", load()["model"]["weight"])
""",
        ),
        freed=frozenset({"shown"}),
        kept=frozenset({"model", "loaded"}),
        holders={"model": ("model", "weight",), "loaded": ("checkpoint", "model",), "shown": ("Out[2]",)},
    ),
    Case(
        name="accelerator_keeps_lists",
        source="huggingface/accelerate#89",
        story="between two trainings model and optimizer are deleted; the second does not fit: the helper object that prepared them has them in its private lists",
        cells=(
            """\
import torch
class Accelerator:
    def __init__(self):
        self._prepared = []
    def prepare(self, model, optimizer):
        self._prepared += [model, optimizer]
        return model, optimizer
accelerator = Accelerator()
model = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("weight", model.weight)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
""",
            """\
del model, optimizer
""",
        ),
        kept=frozenset({"weight"}),
        holders={"weight": ("accelerator", "_prepared",)},
    ),
    Case(
        name="shared_pipeline_parts",
        source="huggingface/diffusers#9624",
        story="every part of a pipeline is deleted by hand before the next one is loaded; the text encoder's memory stays: a second pipeline was made from the parts of the first",
        cells=(
            """\
class Pipeline:
    def __init__(self, **parts):
        self.components = parts
        vars(self).update(parts)
pipe = Pipeline(text_encoder={"weight": block("text")}, vae={"weight": block("vae")})
inpaint = Pipeline(**pipe.components)
""",
            """\
del pipe.text_encoder, pipe.vae, pipe
""",
        ),
        kept=frozenset({"text", "vae"}),
        holders={"text": ("inpaint", "text_encoder",), "vae": ("inpaint", "vae",)},
    ),
)
