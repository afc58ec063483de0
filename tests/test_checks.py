"""The conformance suite passes for every method in the package and catches each kind of broken one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from reta import methods
from reta.checks import check_method
from reta.methods import ops
from reta.methods.base import Base, like, param
from reta.methods.zeroshot import Ensemble
from reta.sample import Output, Sample

FEATURE_METHODS = [name for name in methods.names() if not methods.find(name).needs]


@pytest.mark.parametrize("name", FEATURE_METHODS)
def test_every_method_conforms(name):
    assert check_method(methods.create(name), quiet=True) == []


@pytest.mark.parametrize("name", FEATURE_METHODS)
@pytest.mark.parametrize("preset", ["paper", "released/imagenet-a", "released/dtd"])
def test_every_preset_conforms(name, preset):
    if preset not in methods.presets(name):
        pytest.skip(f"{name} has no preset {preset}")
    assert check_method(methods.create(name, preset), quiet=True) == []


@dataclass(frozen=True, kw_only=True)
class Memory(Base):
    """A correct little method with a memory: the running mean of what it saw."""

    views: int = param(1, "views", choices=(1,))

    def init(self, task):
        return {"mean": like(task, task.dim), "count": like(task)}

    def step(self, task, state, sample):
        count = state["count"] + 1
        mean = state["mean"] + (sample.views[0] - state["mean"]) / count
        logits = task.scale * (sample.views[0] + 0.1 * mean) @ task.text.mT
        new = {"mean": ops.assign(state["mean"], mean), "count": ops.assign(state["count"], count)}
        return Output(logits.softmax(-1), {"logits": logits}), new


class Mutates(Memory):
    def step(self, task, state, sample):
        state["mean"].add_(sample.views[0])
        return super().step(task, state, sample)


class Leaks(Memory):
    seen: ClassVar[list] = []

    def step(self, task, state, sample):
        self.seen.append(sample.views[0])
        shifted = Sample(sample.views + 0.1 * torch.stack(self.seen).mean(0))
        return super().step(task, state, shifted)


class Grows(Memory):
    def init(self, task):
        return super().init(task) | {"all": like(task, 0, task.dim)}

    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return output, new | {"all": torch.cat([state["all"], sample.views[:1]])}


class ReturnsNaN(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        return Output(output.probs / 0 * 0, output.info), state


class DoesNotNormalise(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        return Output(output.probs * 2, output.info), state


class DependsOnClassOrder(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        logits = output.info["logits"] + torch.arange(len(task)).float()
        return Output(logits.softmax(-1), output.info), state


class BranchesOnData(Memory):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return (output, new) if float(state["mean"].sum()) > 0 else (output, state)


class SaysEpisodic(Memory):
    episodic: ClassVar[bool] = True


class FailsOnOneClass(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        return Output(output.probs, output.info | {"margin": output.probs.topk(2).values.diff()}), state


class WantsManyViews(Ensemble):
    views: int = param(8, "views", low=1)

    def step(self, task, state, sample):
        ops.entropy(sample.views[7] @ task.text.mT)
        return super().step(task, state, sample)


class InPlaceDiffers(Memory):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return output, new | {
            "mean": ops.assign(
                state["mean"], 2 * new["mean"] if new["mean"] is state["mean"] else new["mean"]
            )
        }


class KeepsItsInput(Memory):
    def init(self, task):
        return super().init(task) | {"last": like(task, task.dim)}

    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return output, new | {"last": sample.views[0]}


class TellsItsInput(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        return Output(output.probs, output.info | {"feature": sample.views[0]}), state


class IgnoresTheSample(Ensemble):
    def step(self, task, state, sample):
        output, state = super().step(task, state, sample)
        return Output(torch.full_like(output.probs, 1 / len(task)), output.info), state


class KeepsTheGraph(Memory):
    def step(self, task, state, sample):
        with torch.enable_grad():
            return super().step(task, state, Sample(sample.views.clone().requires_grad_()))


class TellsItsState(Memory):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return Output(output.probs, {"mean": new["mean"]}), new


class StartsFromTheTask(Memory):
    def init(self, task):
        return super().init(task) | {"text": task.text}

    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return output, new | {"text": ops.assign(state["text"], 0.9 * state["text"])}


class ChangesTheText(Memory):
    def step(self, task, state, sample):
        task.text.mul_(0.5)
        return super().step(task, state, sample)


class DrawsRandomNumbers(Memory):
    def step(self, task, state, sample):
        torch.manual_seed(0)
        return super().step(task, state, Sample(sample.views + 0.01 * torch.randn_like(sample.views)))


class ChangesType(Memory):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return output, new | {"count": new["count"].double()}


class TellsMoreLater(Memory):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        late = {"count": new["count"].clone()} if float(new["count"]) > 5 else {}
        return Output(output.probs, output.info | late), new


@dataclass(frozen=True, kw_only=True)
class Standardises(Memory):
    """Divides by the spread of the views, which is none when they agree."""

    views: int = param(12, "views", low=1)

    def init(self, task):
        return super().init(task) | {"z": like(task, task.dim)}

    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        z = (sample.views - sample.views.mean(0)) / sample.views.std(0, correction=0)
        return output, new | {"z": z[0]}


@dataclass(frozen=True, kw_only=True)
class TellsNaN(Standardises):
    def step(self, task, state, sample):
        output, new = super().step(task, state, sample)
        return Output(output.probs, {"z": new["z"]}), new | {"z": state["z"]}


class AlwaysSingle(Memory):
    def init(self, task):
        return {"mean": torch.zeros(task.dim), "count": torch.zeros(())}


BROKEN = {
    KeepsItsInput: "input is not kept",
    TellsItsInput: "input is not kept",
    IgnoresTheSample: "answers follow the sample",
    KeepsTheGraph: "nothing carries a gradient",
    TellsItsState: "donation changes nothing",
    StartsFromTheTask: "donation changes nothing",
    ChangesTheText: "input is left alone",
    DrawsRandomNumbers: "nothing is remembered outside the state",
    ChangesType: "state does not grow",
    TellsMoreLater: "info is regular",
    Standardises: "extreme views",
    TellsNaN: "extreme views",
    AlwaysSingle: "precision is the tasks",
    Mutates: "input is left alone",
    Leaks: "nothing is remembered outside the state",
    Grows: "state does not grow",
    ReturnsNaN: "answers are probabilities",
    DoesNotNormalise: "answers are probabilities",
    DependsOnClassOrder: "class order does not matter",
    BranchesOnData: "vectorises",
    SaysEpisodic: "episodic means episodic",
    FailsOnOneClass: "one two and equal classes",
    WantsManyViews: "few views",
    InPlaceDiffers: "donation changes nothing",
}


def test_a_correct_method_of_ones_own_passes():
    assert check_method(Memory(), quiet=True) == []


@pytest.mark.parametrize("cls", BROKEN, ids=lambda c: c.__name__)
def test_each_kind_of_broken_method_is_caught(cls):
    failures = check_method(cls(), quiet=True)
    assert any(failure.startswith(BROKEN[cls] + ":") for failure in failures), failures


def test_failures_are_printed(capsys):
    check_method(ReturnsNaN())
    printed = capsys.readouterr().out
    assert "FAILS  answers are probabilities" in printed
