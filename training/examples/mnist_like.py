"""Learns to read digits on several ranks: `eirene-train run -n 2 mnist_like.py`.

The digits are made here, from a font of 5 × 7 dots, moved about and strewn with noise; nothing is downloaded. Every rank learns from its own
share of them, and DistributedDataParallel averages the gradients.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import eirene_train  # noqa: F401 - makes the backend known

# Each digit is seven rows of five dots, a row being the bits of a number.
FONT = """
    14 17 19 21 25 17 14   4 12 4 4 4 4 14       14 17 1 2 4 8 31      31 2 4 2 1 17 14     2 6 10 18 31 2 2
    31 16 30 1 1 17 14     6 8 16 30 17 17 14    31 1 2 4 8 8 8        14 17 17 14 17 17 14  14 17 17 15 1 2 12
"""


def digits(count: int, seed: int) -> TensorDataset:
    """Pictures of shape (count, 1, 12, 12), and which digits they show."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.tensor([int(row) for row in FONT.split()]).view(10, 7, 1)
    font = (rows >> torch.arange(4, -1, -1) & 1).float()
    labels = torch.randint(10, (count,), generator=random)
    pictures = torch.randn(count, 1, 12, 12, generator=random) * 0.3
    for picture, label, (down, right) in zip(pictures, labels, torch.randint(5, (count, 2), generator=random).tolist()):
        picture[0, down : down + 7, right : right + 5] += font[label]
    return TensorDataset(pictures, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to read digits.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="pictures in a batch of one rank")
    parser.add_argument("--backend", default="eirene")
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 3 * 3, 10),
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    training, test = digits(6000, seed=1), digits(1000, seed=2)
    sampler = DistributedSampler(training)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for pictures, labels in DataLoader(training, arguments.batch, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()

        # Every rank looks at its share of the test pictures; the sums are everybody's.
        share = DataLoader(test, 500, sampler=DistributedSampler(test, shuffle=False))
        with torch.no_grad():
            counts = torch.tensor([[(model(pictures).argmax(1) == labels).sum(), len(labels)] for pictures, labels in share]).sum(0)
        dist.all_reduce(counts)
        if dist.get_rank() == 0:
            right, seen = counts.tolist()
            print(f"epoch {epoch + 1}: {right / seen:.1%} of {seen} digits read right by {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
