"""The code of the guides as programs: the blocks of a page in their order, after what the text takes as given."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
OPTIONAL = frozenset({"onnxscript", "ray", "safetensors", "tokenizers", "transformers"})
"""Packages that a guide is about and the development environment may not have."""

_MODEL = """
import numpy as np, torch, tonnx
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 64, 3), nn.Linear(64, 128)
    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))
model, x = Net().eval(), torch.randn(1, 3, 32, 32)
"""
_PICTURES = """
from PIL import Image
for name in ("cat.jpg", "dog.jpg"):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)).save(name)
model, x = Net().eval(), torch.randn(1, 3, 224, 224)
"""
_DECODER = """
class Decoder(Decoder):
    limit, end = 5, 3
    def __init__(self):
        super().__init__()
        self.cell, self.words = nn.GRUCell(4, 4), nn.Embedding(9, 4)
    def step(self, token, state):
        state = self.cell(self.words(token), state)
        return state.sum(1).abs().long(), state
decoder, state = Decoder().eval(), torch.zeros(1, 4)
"""
_LANGUAGE_MODEL = f"""
import sys, torch, tonnx
sys.path.insert(0, {str(DOCS.parent)!r})
from tests.models import torchvision_schemas
torchvision_schemas.declare()
"""  # transformers imports torchvision, where that is installed
_LANGUAGE_MODEL += """
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
torch.manual_seed(0)
sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=99, **sizes)).eval()
words = {f"w{i}": i for i in range(97)} | {"Once": 97, "upon": 98}
from tokenizers.pre_tokenizers import Whitespace
tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
tokenizer.pre_tokenizer = Whitespace()
model.save_pretrained("SmolLM-135M")
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", eos_token="w2").save_pretrained("SmolLM-135M")
ids = torch.arange(6).reshape(1, 6)
mask = torch.ones(1, 7, dtype=torch.long)
"""
_PADDLE = """
import paddle, tonnx
from paddle.static import InputSpec
class Layer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(784, 8)
    def forward(self, x):
        return self.linear(x)
layer = Layer()
layer.eval()
paddle.jit.save(layer, "inference_model/inference", input_spec=[InputSpec([None, 784], "float32", "x")])
"""
_QUANTISE = """
tonnx.export(model, (x,), "net.onnx", dynamic_axes={"x": {0: "batch"}}, verify=False)
batches = loader = [torch.randn(4, 3, 32, 32) for _ in range(4)]
net = model
"""
_WEIGHTS = """
import os, safetensors.torch
os.mkdir("net")
safetensors.torch.save_file(model.state_dict(), "net/model.safetensors")
"""
_RAY = """
import ray, tonnx.ray
ray.data.from_items([{"x": row} for row in np.zeros((2, 3), np.float32)]).write_parquet("features.parquet")
"""
GIVEN = {
    "control-flow.md": _MODEL,
    "language-models.md": _LANGUAGE_MODEL,
    "paddle.md": _PADDLE,
    "quantise.md": _MODEL + _QUANTISE,
    "recipes.md": _MODEL + _PICTURES,
    "torchscript.md": _MODEL + 'torch.jit.script(model).save("net.pt")\n',
    "verify.md": _MODEL + 'tonnx.export(model, (x,), "out.onnx")\n',
    "weights.md": _MODEL + _WEIGHTS,
    "zoo.md": _MODEL + _RAY,
}
"""What a page takes as given. Pages without an entry say everything themselves."""

BEFORE_THE_LINE = {"tonnx.export(decoder": _DECODER}
"""What belongs between the lines of a block: the class of the guide leaves out what it is not about."""


def blocks(page: Path, language: str = "python") -> list[str]:
    """The blocks of a page in a language; "" are those without one."""
    found = re.findall(r"^```([a-z]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return [block for name, block in found if re.fullmatch(language, name)]


def program(name: str) -> str:
    """The whole page as one program; "" if it has no code."""
    code = "\n".join(blocks(DOCS / name))
    for line, given in BEFORE_THE_LINE.items():
        code = code.replace(line, f"{given}\n{line}")
    return f"{GIVEN.get(name, '')}\n{code}" if code else ""
