"""The models of the synthetic benchmark: residual networks as He, Zhang, Ren and Sun describe them (arXiv:1512.03385), for images of any size.

torchvision's are not needed. A stride of two lies in a bottleneck's 3×3 convolution, as in torchvision, so parameters and work are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["MODELS", "ResNet", "model"]


class _Basic(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    widening = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *_convolution(width, width, 3, 1)
        )
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """From (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        return torch.relu_(self.body(images) + self.shortcut(images))


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut; the last widens fourfold."""

    widening = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.widening
        self.body = nn.Sequential(
            *_convolution(inputs, width, 1, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outputs, 1, 1),
        )
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """From (N, inputs, H, W) to (N, 4 width, H / stride, W / stride)."""
        return torch.relu_(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """A residual network that tells classes of images apart.

    Args:
        block: what it is made of.
        depths: blocks in each stage; a stage halves the image (the first does not) and doubles the width.
        width: of the first stage.
        classes: how many classes.
    """

    def __init__(self, block: type[_Basic] | type[_Bottleneck], depths: Sequence[int], width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        stages: list[nn.Module] = [*_convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stages.append(block(inputs, width << stage, 2 if stage and not number else 1))
                inputs = (width << stage) * block.widening
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """From (N, 3, H, W) to scores of shape (N, classes)."""
        scores: torch.Tensor = self.classifier(self.features(images).mean((2, 3)))
        return scores


# Blocks, depths and width. `tiny` is for trying out.
MODELS: dict[str, tuple[type[_Basic] | type[_Bottleneck], tuple[int, ...], int]] = {
    "resnet18": (_Basic, (2, 2, 2, 2), 64),
    "resnet34": (_Basic, (3, 4, 6, 3), 64),
    "resnet50": (_Bottleneck, (3, 4, 6, 3), 64),
    "resnet101": (_Bottleneck, (3, 4, 23, 3), 64),
    "resnet152": (_Bottleneck, (3, 8, 36, 3), 64),
    "tiny": (_Basic, (1, 1), 4),
}


def model(name: str) -> ResNet:
    """A model of this name, freshly initialised.

    Raises:
        KeyError: there is none.
    """
    block, depths, width = MODELS[name]
    return ResNet(block, depths, width)


def _convolution(inputs: int, outputs: int, side: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(*_convolution(inputs, outputs, 1, stride))
