"""``pate encoder from-torchvision``: an encoder's folder of a torchvision network and a file of weights."""

from __future__ import annotations

import io
import warnings
from pathlib import Path  # noqa: TC003  (typer reads it when it starts)
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from pate.cli.encoder import LicenceOption, OutFolder, TrainedOption, finish
from pate.errors import DataError, UsageError
from pate.runtime.options import of_data

if TYPE_CHECKING:
    from pate.encoders.description import Resample

#: Where networks of torchvision have their last layer.
_HEADS: Final = ("fc", "classifier", "heads", "head")
_OPSET: Final = 17


def from_torchvision(
    model: Annotated[str, typer.Argument(help="Such as resnet18.", metavar="NAME")],
    weights: Annotated[
        Path, of_data(help="Its weights: .safetensors, or .pth of tensors only.", metavar="FILE")
    ],
    out: OutFolder,
    trained: TrainedOption,
    licence: LicenceOption,
    pixels: Annotated[
        int | None, of_data(min=32, max=2048, help="A side. Default: as it was trained")
    ] = None,
) -> None:
    """Make an encoder of a torchvision network.

    Its last layer is left out. The weights come from a file: nothing is downloaded. A .pth file is read
    as tensors only; what else is in it is refused. Size, mean and spread are those that torchvision
    states for the network.

    For example: pate encoder from-torchvision resnet18 --weights resnet18.pth --out ./resnet18
    --licence BSD-3-Clause --trained "torchvision, on ImageNet-1K"
    """
    import torch
    import torchvision

    from pate.encoders.description import Description, FileOf, ImageSteps
    from pate.encoders.making import MODEL, write_folder

    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder")
    known = torchvision.models.list_models(module=torchvision.models)
    if model not in known:
        raise UsageError(
            f"torchvision has no classifier of images {model!r:.80}; see its list_models"
        )
    steps: Any = torchvision.models.get_model_weights(model).DEFAULT.transforms()
    net = torchvision.models.get_model(model, weights=None)
    try:
        net.load_state_dict(_tensors(weights))
    except RuntimeError as error:
        raise DataError(f"{weights} has not the weights of {model}: {error!s:.300}") from error
    head = next((name for name in _HEADS if hasattr(net, name)), None)
    if head is None:
        raise DataError(f"{model} has no last layer under a known name ({', '.join(_HEADS)})")
    setattr(net, head, torch.nn.Identity())
    side = pixels or int(steps.crop_size[0])
    file: Any = io.BytesIO()  # accepted, but not in its annotation
    net.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        example = torch.zeros(1, 3, side, side)
        try:
            width = int(net(example).shape[-1])
            torch.onnx.export(
                net, (example,), file, dynamo=False, opset_version=_OPSET, input_names=["images"],
                output_names=["features"],
            )  # fmt: skip
        except (RuntimeError, AssertionError, torch.onnx.errors.OnnxExporterError) as error:
            raise DataError(
                f"{model} cannot be exported at {side} pixels: {error!s:.300}"
            ) from error
    content = file.getvalue()
    described = Description(
        model, trained, licence, FileOf.of(MODEL, content), "features", "none", width,
        ImageSteps(
            side, side, 3, "crop", min(1.0, steps.crop_size[0] / steps.resize_size[0]),
            cast("Resample", steps.interpolation.value), tuple(steps.mean), tuple(steps.std), "first",
        ),
        None,
    )  # fmt: skip
    write_folder(out, described, [content])
    finish(out)


def _tensors(path: Path) -> dict[str, Any]:
    """Return the tensors in a file; code in it is never run.

    Raises:
        DataError: if it has anything but tensors, or cannot be read.
    """
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        made = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # those of unpickling have no common base but this
        raise DataError(
            f"{path} is no file of tensors only: {str(error).partition(chr(10))[0]:.200}"
        ) from error
    if not isinstance(made, dict) or not all(
        isinstance(each, torch.Tensor) for each in made.values()
    ):
        raise DataError(f"{path} has other things than tensors by name")
    return made
