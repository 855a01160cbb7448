#!/usr/bin/env python3
"""Writes the reference tensors beside this file, from float64 PyTorch.

    python3 tests/golden/make_goldens.py [FAMILY ...]

Every backward is torch.autograd's of a forward written as the formula stands in kernels.h, every optimizer step is
torch.optim.AdamW's or torch.optim.Muon's and every clip torch.nn.utils.clip_grad_norm_'s, so nothing here shares a derivation with the C
code. Inputs are rounded to fp32 first and stored exactly; results are computed from them in float64 and stored as fp32.
The seed is fixed: the files change only with this script (or in last bits with another PyTorch, so name the families
that you change). It needs torch, numpy and safetensors.

One file a family. Case i of a family is the set of tensors named "i.something"; "i.dims" holds its sizes in the order
that the tests read them. Where transformers can be imported whole models are first compared with LlamaForCausalLM,
Qwen3ForCausalLM, Lfm2ForCausalLM and GPTNeoXForCausalLM.
"""

import os
import sys

import family
import torch
from architectures import make_architectures
from model import make_model, make_model_muon, make_packed
from operations import (make_activation, make_adamw, make_attention, make_clip, make_convolution, make_cross_entropy,
                        make_distill, make_embedding, make_head_norm, make_layer_norm, make_linear, make_linear_bias, make_muon_steps,
                        make_norm, make_position_embedding, make_rope, make_swiglu)


def main():
    family.ONLY.update(sys.argv[1:])
    torch.set_num_threads(1)  # the same sums on every machine
    size = sum(make() for make in (
        make_embedding, make_position_embedding, make_norm, make_layer_norm, make_linear, make_linear_bias, make_rope,
        make_head_norm, make_attention, make_convolution, make_swiglu, make_activation, make_cross_entropy, make_distill, make_clip,
        make_adamw, make_muon_steps))
    size += make_model("model", 10, False) + make_model("model_tied", 11, True)
    size += make_model_muon() + make_packed()
    size += make_architectures()
    print(f"{size} bytes together")
    missing = [name for name in sys.argv[1:] if not os.path.exists(os.path.join(family.HERE, name + ".safetensors"))]
    return f"no family is called {', '.join(missing)}" if missing else None


if __name__ == "__main__":
    sys.exit(main())
