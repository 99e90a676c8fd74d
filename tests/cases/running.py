"""Threads, tasks and futures: in use, or remembering."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="worker_remembers_error",
        source="vllm-project/vllm-omni#6385",
        story="each failed request of a background worker leaves more memory behind, the next requests run out of memory: the worker thread waits for work and still has the last request's error in a local, with the frames of run()",
        cells=(
            """\
import queue, threading
requests, answers = queue.Queue(), queue.Queue()
def run(request):
    latents = block("latents")
    raise RuntimeError(f"cannot serve {request}")
def serve_forever():
    failure = None
    while True:
        request = requests.get()
        try:
            run(request)
        except RuntimeError as error:
            failure = error
        answers.put(str(failure))
worker = threading.Thread(target=serve_forever, name="gpu-worker", daemon=True)
worker.start()
""",
            """\
requests.put("a video")
print(answers.get())
""",
        ),
        kept=frozenset({"latents"}),
        holders={"latents": ("gpu-worker", "serve_forever", "failure",)},
    ),
    Case(
        name="future_with_error",
        source="simonsobs/sotodlib#884",
        story="jobs of a thread pool are done, their futures are still in a list, memory of failed and finished ones does not come back: a future keeps its result, and its exception with the frames of the job",
        cells=(
            """\
from concurrent.futures import ThreadPoolExecutor, wait
def process(chunk):
    if chunk == 0:
        return block("result")
    scratch = block("scratch")
    raise ValueError("bad chunk")
with ThreadPoolExecutor(2) as pool:
    jobs = [pool.submit(process, chunk) for chunk in range(2)]
wait(jobs)
print(len(jobs))
""",
        ),
        kept=frozenset({"result", "scratch"}),
        holders={"result": ("jobs",), "scratch": ("jobs", "process", "scratch",)},
    ),
    Case(
        name="tasks_that_failed_silently",
        source="jupyter/notebook#1582",
        story="background tasks of a notebook fail without a word, and their memory stays: the list of tasks keeps them, each with an error nobody has asked for and the coroutine's frames",
        cells=(
            """\
import asyncio
async def work(name, fail):
    data = block(name)
    await asyncio.sleep(0)
    if fail:
        raise KeyError(name)
    return data
tasks = [asyncio.ensure_future(work("a", True)), asyncio.ensure_future(work("b", False))]
await asyncio.sleep(0.05)
""",
        ),
        kept=frozenset({"a", "b"}),
        holders={"a": ("tasks", "work", "data",), "b": ("tasks",)},
    ),
    Case(
        name="background_task_waits",
        source="ikalchev/HAP-python#460",
        story="a background coroutine was started and its handle not kept; memory of what it works on is in use: the event loop's timer holds the sleeping task, and the task its frame: it is not dead",
        cells=(
            """\
import asyncio
async def keep_warm():
    model = block("model")
    while True:
        await asyncio.sleep(3600)
        model.add_(1)
async def start():
    asyncio.get_running_loop().create_task(keep_warm())
    await asyncio.sleep(0.01)
await start()
""",
        ),
        kept=frozenset({"model"}),
        holders={"model": ("keep_warm", "model",)},
    ),
)
