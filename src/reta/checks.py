"""The public conformance suite: what every method must hold, checked on the method itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reta import guard
from reta import state as states
from reta.engine import run
from reta.methods.base import Method
from reta.methods.ops import donated, unit
from reta.sample import Output, Sample
from reta.task import Task

TaskOf = Callable[[int], Task]
DIM, VIEWS, LENGTH = 16, 12, 24
SEED = 77_003  # one that no method would set by chance


class Broken(Exception):
    """A check that does not hold; the message says how."""


def synthetic(classes: int, prompts: int = 6, seed: int = 0) -> Task:
    """Random text features: `prompts` neighbours around one direction per class."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 1, DIM, generator=g)
    return Task.from_features(centres + 0.4 * torch.randn(classes, prompts, DIM, generator=g), scale=20.0)


def views_of(task: Task, n: int = LENGTH, views: int = VIEWS, seed: int = 1) -> Tensor:
    """Random views scattered around the classes of a task, `[n, views, D]`."""
    g = torch.Generator().manual_seed(seed)
    centre = task.text[torch.randint(len(task), (n,), generator=g)]
    image = centre + 0.25 * torch.randn(n, task.dim, generator=g)
    return unit(image[:, None] + 0.1 * torch.randn(n, views, task.dim, generator=g))


def sample_of(method: Method, task: Task, row: Tensor) -> Sample:
    """A sample with all that the method asks for; a second model sees what the first one sees."""
    row = row[: method.views]
    if not method.needs & {"reward", "pixels"}:
        return Sample(row)
    pixels = None
    if "pixels" in method.needs and task.model is not None:
        size = task.model.preprocess.size
        g = torch.Generator().manual_seed(int(row.abs().sum() * 1e4))
        pixels = torch.rand(len(row), 3, size, size, generator=g)
    return Sample(row, row, pixels)


def follow(method: Method, task: Task, views: Tensor) -> tuple[list[Output], states.State]:
    """Run step by step, every state left to itself."""
    state, outputs = method.init(task), []
    with torch.no_grad():
        for row in views:
            output, state = method.step(task, state, sample_of(method, task, row))
            outputs.append(output)
    return outputs, state


def check_method(method: Method, task: TaskOf | None = None, quiet: bool = False) -> list[str]:
    """Check a method; print what fails and return it (an empty list: all holds).

    `task` makes a task of so many classes; methods that need a prompt encoder get one from the embedded
    model if it is not given.

    >>> import reta
    >>> reta.check_method(reta.methods.create("zeroshot"), quiet=True)
    []
    """
    if task is None:
        task = embedded if method.needs else synthetic
    failures = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            check(method, task)
        except Broken as broken:
            failures.append(f"{name}: {broken}")
        except Exception as error:  # a method under test may raise anything
            failures.append(f"{name}: {type(error).__name__}: {error}")
    if not quiet:
        print(f"{type(method).__name__}: {len(CHECKS) - len(failures)} of {len(CHECKS)} checks hold")
        for failure in failures:
            print(f"  FAILS  {failure}")
    return failures


def embedded(classes: int) -> Task:
    """A task of the embedded model, for methods that learn a prompt or ask for a second model."""
    import reta
    from reta.data import shapes

    model = reta.load("reta-mini", device="cpu")
    return Task.build(model, shapes.classes()[:classes], reward=model)


def ensure(holds: bool | Tensor, message: str) -> None:
    if not bool(holds):
        raise Broken(message)


def same(a: list[Output], b: list[Output], tolerance: float = 0.0) -> bool:
    return all(torch.allclose(x.probs, y.probs, rtol=0, atol=tolerance) for x, y in zip(a, b, strict=True))


def check_declares_itself(method: Method, task: TaskOf) -> None:
    ensure(isinstance(method, Method), "a method has views, needs, episodic, init and step")
    ensure(isinstance(method.views, int) and method.views >= 1, "views must be a whole number of at least 1")
    ensure(method.needs <= {"prompt", "reward", "pixels"}, f"unknown needs: {set(method.needs)}")


def check_answers_are_probabilities(method: Method, task: TaskOf) -> None:
    for output in follow(method, task(5), views_of(task(5)))[0]:
        p = output.probs
        ensure(p.shape == (5,), f"probs must be [classes], not {list(p.shape)}")
        ensure(torch.isfinite(p).all(), "probs are not finite")
        ensure((p >= 0).all() and abs(float(p.sum()) - 1) < 1e-4, f"probs sum to {float(p.sum()):.4f}, not 1")


def check_answers_follow_the_sample(method: Method, task: TaskOf) -> None:
    probs = torch.stack([o.probs for o in follow(method, task(5), views_of(task(5)))[0]])
    ensure((probs != probs[0]).any(), "every sample gets the same answer")


def check_precision_is_the_tasks(method: Method, task: TaskOf) -> None:
    if method.needs:
        return
    this = task(5).to(dtype=torch.float64)
    outputs, state = follow(method, this, views_of(this, n=6).double())
    ensure(outputs[-1].probs.dtype == torch.float64, f"probs of a float64 task are {outputs[-1].probs.dtype}")
    narrow = [k for k, v in state.items() if v.is_floating_point() and v.dtype != torch.float64]
    ensure(not narrow, f"float64 views end up in narrower tensors of the state: {narrow}")


def check_nothing_carries_a_gradient(method: Method, task: TaskOf) -> None:
    outputs, state = follow(method, task(5), views_of(task(5), n=3))
    tensors = {"probs": outputs[-1].probs} | outputs[-1].info | state
    tied = [k for k, v in tensors.items() if v.requires_grad]
    ensure(not tied, f"{tied} hold on to the graph of their making, so memory grows: detach them")


def check_input_is_not_kept(method: Method, task: TaskOf) -> None:
    """A caller may use the memory of a sample again for the next one, as the CUDA graph does."""
    this = task(5)
    state = method.init(this)
    for row in views_of(this, n=6):
        sample = sample_of(method, this, row.clone())
        with torch.no_grad():
            output, new = method.step(this, state, sample)
        answer = {"probs": output.probs} | output.info
        before, said = states.digest(new), states.digest(answer)
        for given in (sample.views, sample.reward, sample.pixels):
            if given is not None:
                given.fill_(0.5)
        ensure(states.digest(new) == before, "the state shares memory with the sample: clone what is kept")
        ensure(states.digest(answer) == said, "the output shares memory with the sample: clone what is told")
        state = new


def check_input_is_left_alone(method: Method, task: TaskOf) -> None:
    this = task(5)
    state = method.init(this)
    for row in views_of(this):
        before, seen, words = states.digest(state), row.clone(), _texts(this)
        with torch.no_grad():
            _, new = method.step(this, state, sample_of(method, this, row))
        ensure(states.digest(state) == before, "step changed the state it was given")
        ensure(torch.equal(row, seen) and _texts(this) == words, "step changed its sample or task")
        state = new


def _texts(task: Task) -> str:
    return states.digest({"prompts": task.prompts, "mask": task.mask, "text": task.text})


def check_nothing_is_remembered_outside_the_state(method: Method, task: TaskOf) -> None:
    this, views = task(5), views_of(task(5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        dice = torch.get_rng_state()
        first, end = follow(method, this, views)
        ensure(torch.equal(torch.get_rng_state(), dice), "a step draws or seeds the random numbers all share")
    follow(method, this, views_of(this, seed=7))
    again, end_again = follow(copy.deepcopy(method), this, views)
    third, end_third = follow(method, this, views)
    ensure(same(first, again) and same(first, third), "the same stream gave other answers the second time")
    ensure(
        states.equal(end, end_again) and states.equal(end, end_third), "the same stream left another state"
    )


def check_state_does_not_grow(method: Method, task: TaskOf) -> None:
    this = task(5)
    state = method.init(this)
    shape = {k: (v.shape, v.dtype) for k, v in state.items()}
    for row in views_of(this):
        with torch.no_grad():
            state = method.step(this, state, sample_of(method, this, row))[1]
        now = {k: (v.shape, v.dtype) for k, v in state.items()}
        ensure(now == shape, f"the state changed its keys, shapes or types: {now} was {shape}")


def check_state_is_tensors(method: Method, task: TaskOf) -> None:
    state = follow(method, task(3), views_of(task(3)))[1]
    ensure(all(isinstance(v, Tensor) for v in state.values()), "a state holds tensors only")
    ensure(guard.sane(state), "NaN in the state")


def check_info_is_regular(method: Method, task: TaskOf) -> None:
    outputs = follow(method, task(5), views_of(task(5)))[0]
    shapes = {k: (v.shape, v.dtype) for k, v in outputs[0].info.items()}
    for output in outputs:
        ensure(all(isinstance(v, Tensor) for v in output.info.values()), "info holds tensors only")
        ensure(
            {k: (v.shape, v.dtype) for k, v in output.info.items()} == shapes,
            "info changes from step to step",
        )


def check_class_order_does_not_matter(method: Method, task: TaskOf) -> None:
    this, views = task(5), views_of(task(5))
    order = torch.tensor([3, 0, 4, 1, 2])
    turned = Task(
        tuple(this.names[i] for i in order),
        this.prompts[order],
        this.mask[order],
        this.scale,
        tuple(this.sentences[i] for i in order) if this.sentences else (),
        this.model,
        None
        if this.reward is None
        else Task(this.reward.names, this.reward.prompts[order], this.reward.mask[order]),
    )
    plain, other = follow(method, this, views)[0], follow(method, turned, views)[0]
    for a, b in zip(plain, other, strict=True):
        gap = float((a.probs[order] - b.probs).abs().max())
        ensure(gap < 1e-3, f"permuting the classes does not permute the answer (off by {gap:.2g})")


def check_one_two_and_equal_classes(method: Method, task: TaskOf) -> None:
    for classes in (1, 2):
        for output in follow(method, task(classes), views_of(task(classes)))[0]:
            ensure(torch.isfinite(output.probs).all(), f"not finite with {classes} classes")
    this = task(2)
    twin = Task(
        (this.names[0],) * 2,
        this.prompts[[0, 0]],
        this.mask[[0, 0]],
        this.scale,
        this.sentences[:1] * 2,
        this.model,
        this.reward,
    )
    for output in follow(method, twin, views_of(twin))[0]:
        ensure(torch.isfinite(output.probs).all(), "not finite with two classes of one name")


def check_few_views(method: Method, task: TaskOf) -> None:
    this = task(4)
    for views in (1, 2, 9):
        for output in follow(method, this, views_of(this, n=6, views=views))[0]:
            ensure(torch.isfinite(output.probs).all(), f"not finite with {views} views")


def check_extreme_views(method: Method, task: TaskOf) -> None:
    this = task(4)
    exact = this.text[:, None].repeat(1, VIEWS, 1)
    for row in (exact, -exact, torch.zeros_like(exact).index_fill_(-1, torch.tensor([0]), 1.0)):
        outputs, state = follow(method, this, row)
        where = "when views equal a text, oppose it, or all agree"
        for output in outputs:
            ensure(torch.isfinite(output.probs).all(), f"not finite {where}")
            odd = [k for k, v in output.info.items() if v.is_floating_point() and bool(v.isnan().any())]
            ensure(not odd, f"NaN in the info {where}: {odd}")
        ensure(guard.sane(state), f"NaN in the state {where}")


def check_episodic_means_episodic(method: Method, task: TaskOf) -> None:
    if not method.episodic:
        return
    this, views = task(4), views_of(task(4))
    forward, end = follow(method, this, views)
    backward = follow(method, this, views.flip(0))[0][::-1]
    ensure(same(forward, backward, 1e-6), "an episodic method depends on the order")
    ensure(states.equal(method.init(this), end), "an episodic method moved its state")


def check_donation_changes_nothing(method: Method, task: TaskOf) -> None:
    this, views = task(5), views_of(task(5))
    fresh, words = states.digest(method.init(this)), _texts(this)
    pure, end = follow(method, this, views)
    with donated():
        given, given_end = follow(method, this, views)
    ensure(same(pure, given) and states.equal(end, given_end), "writing in place gives other numbers")
    told = all(states.equal(a.info, b.info) for a, b in zip(pure, given, strict=True))
    ensure(told, "the info shares memory with the state, which is overwritten: clone what is told")
    ensure(_texts(this) == words, "the state shares memory with the task: clone what init takes from it")
    ensure(states.digest(method.init(this)) == fresh, "init gives another state the second time")


def check_run_agrees_with_steps(method: Method, task: TaskOf) -> None:
    if method.needs & {"reward", "pixels"}:
        return
    this, views = task(5), views_of(task(5))
    views = torch.cat(
        [views[:3], torch.full_like(views[:1], float("nan")), torch.zeros_like(views[:1]), views[3:]]
    )
    keep = [0, 1, 2, *range(5, len(views))]
    steps, end = follow(method, this, views[keep])
    out = run(method, this, views, device="cpu")
    ensure(not bool(out.valid[3]) and not bool(out.valid[4]), "a sample of NaN or zero views was not flagged")
    gap = (torch.stack([o.probs for o in steps]).float() - out.probs[keep]).abs().max()
    ensure(gap < 1e-5, f"reta.run and step by step differ by {float(gap):.2g}")
    near = all(
        torch.allclose(end[k].double(), v.double(), atol=1e-5, equal_nan=True) for k, v in out.state.items()
    )
    ensure(near, "a bad sample left a trace in the state, or the state differs")


def check_vectorises(method: Method, task: TaskOf) -> None:
    """One step over two states at once: branch-free code runs under vmap, code with `if` on data does not."""
    if method.needs:
        return
    this, views = task(5), views_of(task(5), n=10)
    a, b = follow(method, this, views[:4])[1], follow(method, this, views[4:9])[1]
    if not a:
        return
    stacked = {k: torch.stack([a[k], b[k]]) for k in a}

    def step(state: states.State) -> tuple[Any, states.State]:
        output, new = method.step(this, state, Sample(views[9][: method.views]))
        return output.probs, new

    with torch.no_grad():
        probs, _ = torch.func.vmap(step)(stacked)
        for i, state in enumerate((a, b)):
            gap = float((probs[i] - step(state)[0]).abs().max())
            ensure(gap < 1e-4, f"vectorised and single steps differ by {gap:.2g}")


def _checks() -> Iterator[Callable[[Method, TaskOf], None]]:
    return (
        value for name, value in globals().items() if name.startswith("check_") and name != "check_method"
    )


CHECKS = tuple(_checks())
