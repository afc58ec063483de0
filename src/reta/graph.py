"""One step as a CUDA graph: captured once, replayed per image, nothing but the views copied in.

At a hundred classes a step is a few dozen small kernels, and launching them costs more than running them.
A replay launches all of them at once. The state lives in fixed tensors that the step overwrites.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reta import state as states
from reta.methods.base import Method
from reta.methods.ops import donated
from reta.sample import Output, Sample
from reta.task import Task

WARM_UP = 3


class Graph:
    """A captured step. Call it with a sample of the shape it was made for; the answer is a copy."""

    def __init__(self, method: Method, task: Task, state: states.State, example: Sample):
        self.views = example.views.clone()
        self.reward = None if example.reward is None else example.reward.clone()
        self.state = states.clone(state)
        self._capture(method, task)
        for key, value in state.items():
            self.state[key].copy_(value)

    def _capture(self, method: Method, task: Task) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(WARM_UP):
                self._step(method, task)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.output = self._step(method, task)

    def _step(self, method: Method, task: Task) -> Output:
        with donated():
            output, new = method.step(task, self.state, Sample(self.views, self.reward))
        for key, value in new.items():
            if value is not self.state[key]:
                self.state[key].copy_(value)
        return output

    def fits(self, sample: Sample) -> bool:
        """Whether a sample has the shapes this graph was captured for."""
        return sample.views.shape == self.views.shape and (sample.reward is None) == (self.reward is None)

    def __call__(self, sample: Sample) -> Output:
        self.views.copy_(sample.views, non_blocking=True)
        if self.reward is not None and sample.reward is not None:
            self.reward.copy_(sample.reward, non_blocking=True)
        self.graph.replay()
        return Output(self.output.probs.clone(), {k: v.clone() for k, v in self.output.info.items()})


def capturable(method: Method, task: Task) -> bool:
    """Graphs serve methods on features, on a GPU; the others run eagerly."""
    tensor: Tensor = task.prompts
    return tensor.is_cuda and not method.needs & {"prompt", "pixels"}
