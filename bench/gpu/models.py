#!/usr/bin/env python3
"""Models to measure with: random weights, made-up data. They stand for the cost of their kind, not for its answers.

    bench/gpu/models.py list
    bench/gpu/models.py export resnet50 --to resnet50.pt [--device cuda] [--type FP16]   for inference, as TorchScript
    bench/gpu/models.py train  resnet50 --batch 64 --steps 100 [--seconds 10]            trains, and says how fast

`export` prints the options that tell divvy-worker and `divvy profile` of the inputs.
"""

import argparse
import contextlib
import json
import sys
import time

import torch
from torch import nn

TYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16, "INT64": torch.int64, "UINT8": torch.uint8}


class Encoder(nn.Module):
    """A transformer encoder over token numbers: BERT-base's sizes unless told otherwise."""

    def __init__(self, layers=12, width=768, heads=12, words=30522, length=128):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)
        self.register_buffer("order", torch.arange(length))

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens) + self.places(self.order))[:, 0])


class DecoderStep(nn.Module):
    """One token further, of a GPT-2-small-like decoder, with the keys and values of `past` tokens before it."""

    def __init__(self, layers=12, width=768, heads=12, words=50257, past=512):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(words, width)
        self.inputs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.grow = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.shrink = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, words, bias=False)
        self.register_buffer("keys", torch.randn(layers, 1, heads, past, width // heads))
        self.register_buffer("values", torch.randn(layers, 1, heads, past, width // heads))

    def forward(self, token):
        batch = token.shape[0]
        x = self.embed(token)  # batch, 1, width
        for i, (entry, leave, grow, shrink) in enumerate(zip(self.inputs, self.outputs, self.grow, self.shrink)):
            query, key, value = (
                part.reshape(batch, 1, self.heads, -1).transpose(1, 2)
                for part in entry(self.norms[2 * i](x)).chunk(3, dim=-1)
            )
            keys = torch.cat([self.keys[i].expand(batch, -1, -1, -1), key], 2)
            values = torch.cat([self.values[i].expand(batch, -1, -1, -1), value], 2)
            weights = torch.softmax(query @ keys.transpose(-1, -2) * keys.shape[-1] ** -0.5, dim=-1)
            x = x + leave((weights @ values).transpose(1, 2).reshape(batch, 1, -1))
            x = x + shrink(nn.functional.gelu(grow(self.norms[2 * i + 1](x))))
        return self.head(x[:, 0])


class LanguageModel(nn.Module):
    """An LSTM over word numbers, of the size that is usual for the Penn Treebank. Trained on all words, asked for the next."""

    def __init__(self, words=10000, width=650, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        states = self.lstm(self.embed(tokens))[0]
        return self.head(states if self.training else states[:, -1])


class Recommender(nn.Module):
    """DLRM's shape: 26 tables, two stacks of layers, products of pairs. Little to compute, much to remember.

    Gradients of the tables are sparse: a step reads and writes the rows it used, as recommenders do, not whole tables.
    """

    def __init__(self, rows=1_000_000, width=64, tables=26, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width, sparse=True) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width))
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        rows = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        products = rows @ rows.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))


class OfPixels(nn.Module):
    """A vision model that takes pixels as cameras give them, a byte each, and scales them itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        return self.model((image.to(next(self.model.parameters()).dtype) - 127.5) / 64)


def vision(name, classes=1000, size=224):
    def make():
        import torchvision
        return OfPixels(getattr(torchvision.models, name)(weights=None, num_classes=classes))
    # Inputs of an item: name, type (None: the model's own), dims, and for whole numbers what they are below; outputs.
    return make, [("image", "UINT8", [3, size, size], 256)], [("scores", [classes])]


def tokens(make, length, words, outputs):
    return make, [("tokens", "INT64", [length], words)], outputs


FAMILIES = {
    "resnet50": vision("resnet50"),
    "resnet152": vision("resnet152"),
    "resnet18-32": vision("resnet18", 10, 32),
    "efficientnet_v2_s": vision("efficientnet_v2_s"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "vgg16": vision("vgg16"),
    "encoder": tokens(Encoder, 128, 30522, [("scores", [2])]),
    "encoder-small": tokens(lambda: Encoder(12, 384, 12), 128, 30522, [("scores", [2])]),
    "decoder-step": tokens(DecoderStep, 1, 50257, [("scores", [50257])]),
    "lstm-lm": tokens(LanguageModel, 35, 10000, [("scores", [10000])]),
    "dlrm": (Recommender, [("dense", None, [13], None), ("sparse", "INT64", [26], 1_000_000)], [("click", [1])]),
    # As above with tables that fit anywhere: for machines without a GPU.
    "dlrm-small": (lambda: Recommender(1000), [("dense", None, [13], None), ("sparse", "INT64", [26], 1000)], [("click", [1])]),
}


def items(inputs, batch, device, dtype):
    return [
        torch.randn(batch, *dims, device=device, dtype=dtype) if below is None
        else torch.randint(below, (batch, *dims), device=device, dtype=TYPES[kind])
        for _, kind, dims, below in inputs
    ]


def export(a):
    make, inputs, outputs = FAMILIES[a.family]
    dtype = TYPES[a.type]
    torch.manual_seed(1)
    model = make().to(a.device, dtype).eval()
    # The fused encoder layer cannot be traced for other batches than it saw.
    if hasattr(torch.backends, "mha"):
        torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        traced = torch.jit.freeze(torch.jit.trace(model, items(inputs, 2, a.device, dtype), check_trace=False))
        other = items(inputs, 3, a.device, dtype)
        want, got = model(*other).float(), traced(*other).float()
        if (want - got).abs().max() > 0.05 * want.abs().max():
            raise SystemExit(f"models.py: {a.family} is not the same after export")
    traced.save(a.to)
    print(json.dumps({
        "inputs": [{"name": name, "type": kind or a.type, "dims": dims} for name, kind, dims, _ in inputs],
        "outputs": [{"name": name, "type": a.type, "dims": dims} for name, dims in outputs],
        "options": [word for name, kind, dims, _ in inputs for word in ("--input", f"{name}:{kind or a.type}:{','.join(map(str, dims))}")]
        + [word for name, dims in outputs for word in ("--output", f"{name}:{a.type}:{','.join(map(str, dims))}")],
    }))


def training_step(family, batch, device):
    """A function that takes one step."""
    make, inputs, _ = FAMILIES[family]
    torch.manual_seed(1)
    model = make().to(device).train()
    # Momentum would be as large as the tables, and touch all of them at each step.
    momentum = 0.0 if isinstance(model, Recommender) else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=momentum)
    data = items(inputs, batch, device, torch.float32)
    cuda = device.startswith("cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16) if cuda else contextlib.nullcontext():
            loss = model(*data).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def train(a):
    step = training_step(a.family, a.batch, a.device)
    cuda = a.device.startswith("cuda")

    def wait():
        if cuda:
            torch.cuda.synchronize()

    for _ in range(a.warmup):
        step()
    wait()
    print("READY", flush=True)
    if a.barrier:
        sys.stdin.readline()
    begin, done = time.perf_counter(), 0
    said = begin
    while done < a.steps if a.steps else time.perf_counter() - begin < a.seconds:
        step()
        done += 1
        # So that launches do not run ahead without bound, and what is said is done.
        if done % 8 == 0 or time.perf_counter() - said > 0.2:
            wait()
            print("step", done, flush=True)
            said = time.perf_counter()
    wait()
    seconds = time.perf_counter() - begin
    print("RESULT", json.dumps({"steps": done, "seconds": round(seconds, 4), "steps_per_s": round(done / seconds, 4)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    one = verbs.add_parser("export")
    one.add_argument("family", choices=FAMILIES)
    one.add_argument("--to", required=True)
    one.add_argument("--type", choices=["FP32", "FP16", "BF16"], default="FP32")
    two = verbs.add_parser("train")
    two.add_argument("family", choices=FAMILIES)
    two.add_argument("--batch", type=int, default=32)
    two.add_argument("--steps", type=int, default=0)
    two.add_argument("--seconds", type=float, default=10)
    two.add_argument("--warmup", type=int, default=3)
    two.add_argument("--barrier", action="store_true", help="begin when a line comes on standard input")
    for verb in (one, two):
        verb.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = parser.parse_args()
    if a.verb == "list":
        print("\n".join(FAMILIES))
    else:
        {"export": export, "train": train}[a.verb](a)


if __name__ == "__main__":
    main()
