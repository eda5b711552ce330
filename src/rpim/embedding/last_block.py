"""Split an encoder into the frozen part and the last block with everything after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rpim._common.errors import InputError, first_line


class _Entered(Exception):
    """The last block is reached, and what enters it is known."""


class LastBlock:
    """The last block of a model of timm, and everything behind it; nothing else has a gradient from here on.

    The block is the last of those that timm lists for the model and that holds a weight matrix: a ViT's last
    transformer block, the last stage of a convolutional network. What follows it, such as the final norm, is run by the
    model itself, on what enters the block in the place of what the rest of the model has made of a blank picture. So
    nothing has to be known of how the model is built, and the rest costs a single picture a batch.

    Parameters
    ----------
    model : a model of timm, in evaluation mode
        It stays in it: batch norms keep their statistics, and the rows are those that an encoder will give.
    size : int
        The side of its pictures.

    Attributes
    ----------
    name : str
        Where the block is in the model.
    n_features : int
        The width of its rows.
    parameters : dict of str to Parameter
        What can be trained: the parameters that the rows depend on from the block onwards.

    Raises
    ------
    InputError
        If the model cannot be divided.
    """

    def __init__(self, model: Any, size: int) -> None:
        self._model = model.eval()
        like = next(model.parameters())
        self._blank = torch.zeros(1, 3, size, size, device=like.device, dtype=like.dtype)
        pictures = torch.linspace(-1, 1, 6 * size * size).reshape(2, 3, size, size).to(self._blank)
        try:
            self.name = _last_with_weights(model)
            self._block: nn.Module = model.get_submodule(self.name)
            self.parameters = self._find_parameters(self.entering(pictures))
            with torch.no_grad():
                rows = self.rows(self.entering(pictures))
                torch.testing.assert_close(rows, model(pictures), rtol=1e-3, atol=1e-4)
            self.n_features = rows.shape[1]
        except (AttributeError, KeyError, TypeError, LookupError, RuntimeError, AssertionError) as error:
            raise InputError(
                f"{type(model).__name__} cannot be divided before its last block ({first_line(error)}): choose another "
                "encoder, such as a ViT."
            ) from error

    def entering(self, pictures: Tensor) -> Tensor:
        """What enters the block, without a gradient. (n, 3, size, size) -> (n, ...)"""
        entered: list[Tensor] = []

        def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            entered.append(given[0])
            raise _Entered

        with self._when_called(keep), torch.no_grad(), contextlib.suppress(_Entered):
            self._model(pictures)
        return entered[0]

    def rows(self, entering: Tensor) -> Tensor:
        """The embedding of what enters the block. (n, ...) -> (n, D)"""
        if entering.ndim == 4:
            entering = entering.contiguous(memory_format=torch.channels_last)  # as the encoder's pictures are

        def replace(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return (entering, *given[1:]), named

        with self._when_called(replace):
            rows: Tensor = self._model(self._blank)
        return rows

    @contextlib.contextmanager
    def _when_called(self, hook: Callable[..., Any]) -> Iterator[None]:
        handle = self._block.register_forward_pre_hook(hook, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _find_parameters(self, entering: Tensor) -> dict[str, nn.Parameter]:
        """Those that a gradient reaches, and no others require one afterwards."""
        named = dict(self._model.named_parameters())
        with torch.enable_grad():
            for parameter in named.values():
                parameter.requires_grad_(True)
            reached = torch.autograd.grad(self.rows(entering).sum(), list(named.values()), allow_unused=True)
        for parameter, gradient in zip(named.values(), reached, strict=True):
            parameter.requires_grad_(gradient is not None)
        return {name: parameter for name, parameter in named.items() if parameter.requires_grad}


def _last_with_weights(model: Any) -> str:
    for stage in reversed(list(model.feature_info)):
        name = str(stage["module"])
        if any(value.ndim > 1 for value in model.get_submodule(name).parameters()):
            return name
    raise LookupError("timm lists no block with weights")
