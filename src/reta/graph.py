"""One step as a CUDA graph: captured once, replayed per image, nothing but the views copied in.

At a hundred classes a step is a few dozen small kernels, and launching them costs more than running them.
A replay launches all of them at once. The state lives in fixed tensors that the step overwrites, and the
answer is written as one row of bytes, so that keeping it costs one copy whatever a method has to tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from reta import state as states
from reta.methods.base import Method
from reta.methods.ops import donated
from reta.sample import Output, Sample
from reta.task import Task

WARM_UP = 3


@dataclass(frozen=True)
class Layout:
    """Where the tensors of an output lie in a row of bytes: key, type and shape of each, probabilities first.

    >>> output = Output(torch.tensor([0.25, 0.75]), {"label": torch.tensor(1)})
    >>> layout = Layout.of(output)
    >>> layout.unpack(torch.stack([layout.pack(output)] * 2)).info["label"]
    tensor([1, 1])
    """

    parts: tuple[tuple[str, torch.dtype, torch.Size], ...]

    @classmethod
    def of(cls, output: Output) -> Layout:
        return cls(tuple((key, value.dtype, value.shape) for key, value in _named(output).items()))

    def pack(self, output: Output) -> UInt8[Tensor, " bytes"]:
        """All tensors of one output, end to end."""
        return torch.cat([v.reshape(-1).view(torch.uint8) for v in _named(output).values()])

    def unpack(self, rows: UInt8[Tensor, "samples bytes"]) -> Output:
        """The outputs of many samples, each tensor with the samples as its first axis."""
        sizes = [dtype.itemsize * shape.numel() for _, dtype, shape in self.parts]
        pieces = zip(self.parts, rows.split(sizes, 1), strict=True)
        found = {
            key: piece.contiguous().view(dtype).reshape(-1, *shape) for (key, dtype, shape), piece in pieces
        }
        return Output(found.pop(""), found)


def _named(output: Output) -> dict[str, Tensor]:
    return {"": output.probs} | output.info


class Graph:
    """A captured step. Call it with a sample of the shape it was made for; the answer is a row of `layout`."""

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
            output = self._step(method, task)
            self.layout = Layout.of(output)
            self.row = self.layout.pack(output)

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

    def __call__(self, sample: Sample) -> UInt8[Tensor, " bytes"]:
        self.views.copy_(sample.views, non_blocking=True)
        if self.reward is not None and sample.reward is not None:
            self.reward.copy_(sample.reward, non_blocking=True)
        self.graph.replay()
        return self.row.clone()


def capturable(method: Method, task: Task) -> bool:
    """Graphs serve methods on features, on a GPU; the others run eagerly."""
    tensor: Tensor = task.prompts
    return tensor.is_cuda and not method.needs & {"prompt", "pixels"}
