"""Names of the notebook: the user's own, whatever they look like."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="underscore_is_a_name",
        source="pytorch/pytorch#3931",
        story="the second result of a recurrent layer is thrown away into '_', and takes memory all the same: an assignment made '_' a name of the notebook: the shell's own last output is another thing",
        cells=(
            """\
def recurrent():
    return block("out"), block("states")
out, _ = recurrent()
""",
            """\
block("shown")
""",
        ),
        freed=frozenset({"shown"}),
        kept=frozenset({"states", "out"}),
        holders={"states": ("_",), "out": ("out",), "shown": ("Out[2]",)},
    ),
    Case(
        name="metric_state_not_reset",
        source="NRCan/geo-deep-learning#582",
        story="memory creeps up by a little each epoch, faster with more metrics: the metric object's list of predictions is never reset",
        cells=(
            """\
class Metric:
    def __init__(self):
        self.preds = []
    def update(self, pred):
        self.preds.append(pred)
        return len(self.preds)
metrics = {"iou": Metric()}
for epoch in range(2):
    metrics["iou"].update(block(f"epoch{epoch}"))
""",
        ),
        kept=frozenset({"epoch0", "epoch1"}),
        holders={"epoch0": ("metrics", "iou", "preds",), "epoch1": ("metrics", "iou", "preds",)},
    ),
    Case(
        name="loop_variables_stay",
        source="lucidrains/denoising-diffusion-pytorch#75",
        story="after sampling in a loop at the top of a notebook, the next step has less memory than the loop had: batch, image and grid are names of the notebook now and stay until they are bound again",
        cells=(
            """\
grid = []
for index in range(2):
    batch = block("batch")
    image = tag_tensor("image", batch * 2)
    grid = [tag_tensor("mean", image.view(512, 512) + 1)]
""",
        ),
        kept=frozenset({"batch", "image", "mean"}),
        holders={"batch": ("batch",), "image": ("image",), "mean": ("grid",)},
    ),
)
