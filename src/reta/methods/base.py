"""What a method is: a frozen dataclass of hyper-parameters with two pure functions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from reta.errors import BadInput
from reta.sample import Output, Sample
from reta.task import Task

State = dict[str, Tensor]


@runtime_checkable
class Method(Protocol):
    """The contract. `init` makes the state of an empty history, `step` answers for one sample and says what
    the state is afterwards. Both are pure: what they are given is never changed, and what they return shares
    no memory with the sample or the task, nor the output with the state. `reta.check_method` tells.

    `views` is how many views a step can use, `needs` what else it asks for ("prompt", "reward", "pixels"),
    `episodic` whether every sample starts from the same state.
    """

    views: ClassVar[int]
    needs: ClassVar[frozenset[str]]
    episodic: ClassVar[bool]

    def init(self, task: Task) -> State: ...

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]: ...


def param(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] | None = None,
    eq: str = "",
    static: bool = False,
) -> Any:
    """A hyper-parameter: its default, its meaning, its legal range (ends included) or choices, its equation.

    A real number is `static` when it decides a shape (a share of the views): a sweep does not vectorise it.
    """
    metadata = {
        "doc": doc,
        "low": low,
        "high": high,
        "choices": tuple(choices or ()),
        "eq": eq,
        "static": static,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """Common ground of the methods in this package: checks every field against its declared range.

    A number may be given as a tensor (a vectorised sweep does); tensors are not checked.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    episodic: ClassVar[bool] = False
    summary: ClassVar[str] = ""
    equations: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check(type(self).__name__, field, getattr(self, field.name))

    def init(self, task: Task) -> State:
        """An empty history; a method with a memory overrides this."""
        return {}


def check(owner: str, field: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value outside the field's type, range or choices, naming all three."""
    if isinstance(value, Tensor) or not field.metadata:
        return
    low, high, choices = (field.metadata[k] for k in ("low", "high", "choices"))
    if choices:
        if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
            raise BadInput(
                f"{owner}.{field.name} must be one of {', '.join(map(repr, choices))}, not {value!r}"
            )
        return
    kind = type(field.default)
    if kind is bool or kind is str:
        legal = isinstance(value, kind)
    elif kind is int:
        legal = isinstance(value, int) and not isinstance(value, bool)
    else:
        legal = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not legal:
        raise BadInput(f"{owner}.{field.name} must be of type {kind.__name__}, not {value!r}")
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = (
            f"at least {low}"
            if high is None
            else f"at most {high}"
            if low is None
            else f"from {low} to {high}"
        )
        raise BadInput(f"{owner}.{field.name} must be {bounds}, not {value!r}")


def like(task: Task, *shape: int, fill: float = 0.0, dtype: torch.dtype | None = None) -> Tensor:
    """A new tensor of state on the task's device and in its precision (or in another `dtype`)."""
    return torch.full(shape, fill, device=task.prompts.device, dtype=dtype or task.prompts.dtype)
