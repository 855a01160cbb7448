"""Transformers of Inkling that no class of Hugging Face transformers can represent (trust_remote_code=True).

A layer adds two branches to the residual stream, attention (or a convolution) and MLP; with an encoder, it has a third
one between them, cross-attention to the encoder's output. config.json defines their components: the type and place of
norms, the activation, biases, positions and the mixers of the decoder's layers. ./train copies this file next to
config.json. (transformers has an unrelated model called Inkling; these classes are called InklingParts.)
"""

from collections import namedtuple
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
               "relu": F.relu}


class InklingPartsConfig(PretrainedConfig):
    model_type = "inkling_parts"

    def __init__(self, vocab_size=257, hidden_size=64, intermediate_size=256, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=None, head_dim=None, max_position_embeddings=64,
                 hidden_act="silu", norm="rms", norm_place="before", norm_eps=1e-5, gated=True, positions="rope",
                 rope_theta=10000.0, partial_rotary_factor=1.0, qk_norm=False, mixers=None, qkv_bias=False,
                 bias=False, head_bias=False, tie_word_embeddings=False, encoder_layers=0, source_vocab_size=None,
                 **others):
        if mixers is not None:
            self.mixers = mixers  # of each layer of the decoder, a key of MIXERS; default: attention
        self.encoder_layers, self.source_vocab_size = encoder_layers, source_vocab_size or vocab_size
        self.vocab_size, self.max_position_embeddings = vocab_size, max_position_embeddings
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.hidden_act, self.gated = hidden_act, gated
        self.norm, self.norm_place, self.norm_eps = norm, norm_place, norm_eps
        self.positions, self.rope_theta, self.qk_norm = positions, rope_theta, qk_norm
        self.partial_rotary_factor = partial_rotary_factor
        self.qkv_bias, self.bias, self.head_bias = qkv_bias, bias, head_bias
        others["is_encoder_decoder"] = encoder_layers > 0
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)


TAPS = 3  # of a convolution
# What a mixer reads besides x: the angles of RoPE, the visible keys, [B, T, 1] 0: padding, the KV cache.
Context = namedtuple("Context", "angles visible present cache")

# What generate() calls keys and values, and looks for in outputs: another name since transformers 5.24.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


def make_norm(config):
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.hidden_size, config.norm_eps)


def mixers_of(config):
    return getattr(config, "mixers", ["attention"] * config.num_hidden_layers)


def rotate(x, angles):
    """Turns the pairs (i, i + half) of each head by the angles [B, 1, T, half] of their positions; the rest stays."""
    half = angles.shape[-1]
    first, second, rest = x.float().split([half, half, x.shape[-1] - 2 * half], -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.layer, self.head_dim = layer, config.head_dim
        width, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=config.bias)

    def heads(self, project, x):
        return project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def attend(self, q, k, v, visible):
        shared = q.shape[1] // k.shape[1]  # query heads to a key and value head
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).flatten(2))


class SelfAttention(Attention):
    def __init__(self, config, layer, rope):
        super().__init__(config, layer)
        self.rope, self.normed = rope, config.qk_norm
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x, context):
        q, k, v = (self.heads(project, x) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.normed:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope:
            q, k = rotate(q, context.angles), rotate(k, context.angles)
        if context.cache is not None:
            k, v = context.cache.update(k, v, self.layer)
        return self.attend(q, k, v, context.visible)


class Convolution(nn.Module):
    """out_proj(c * conv(b * x)), where b, c, x = in_proj(input); conv sees a token and the TAPS - 1 before it."""

    def __init__(self, config, layer):
        super().__init__()
        width, self.layer = config.hidden_size, layer
        self.in_proj = nn.Linear(width, 3 * width, bias=False)
        self.conv = nn.Conv1d(width, width, TAPS, groups=width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, context):
        b, c, x = self.in_proj(x).chunk(3, -1)
        inputs, length = b * x * context.present, x.shape[1]
        if context.cache is not None:  # all b * x so far, as keys without values: every kind of cache can hold them
            inputs = context.cache.update(inputs[:, None], inputs[:, None, :, :0], self.layer)[0][:, 0]
        inputs = F.pad(inputs[:, -(length + TAPS - 1):], (0, 0, max(0, length + TAPS - 1 - inputs.shape[1]), 0))
        return self.out_proj(c * self.conv(inputs.transpose(1, 2)).transpose(1, 2))


MIXERS = {"attention": lambda config, layer: SelfAttention(config, layer, rope=config.positions == "rope"),
          "attention_without_rope": partial(SelfAttention, rope=False), "convolution": Convolution}


class CrossAttention(Attention):
    def forward(self, x, memory, visible, caches):
        """The keys and values of the source are computed once."""
        if caches is not None and caches.is_updated.get(self.layer):
            kept = caches.cross_attention_cache.layers[self.layer]
            k, v = kept.keys, kept.values
        else:
            k, v = self.heads(self.k_proj, memory), self.heads(self.v_proj, memory)
            if caches is not None:
                k, v = caches.cross_attention_cache.update(k, v, self.layer)
                caches.is_updated[self.layer] = True
        return self.attend(self.heads(self.q_proj, x), k, v, visible)


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act]
        if config.gated:
            self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.bias)
        self.gated = config.gated

    def forward(self, x):
        up = self.up_proj(x)
        return self.down_proj(self.activation(self.gate_proj(x)) * up if self.gated else self.activation(up))


class Layer(nn.Module):
    def __init__(self, config, layer, mixer, cross):
        super().__init__()
        self.place, self.mixer = config.norm_place, "conv" if mixer == "convolution" else "self_attn"
        self.input_layernorm = make_norm(config)
        setattr(self, self.mixer, MIXERS[mixer](config, layer))
        if cross:
            self.cross_attention_layernorm, self.cross_attn = make_norm(config), CrossAttention(config, layer)
        self.post_attention_layernorm, self.mlp = make_norm(config), Mlp(config)

    def join(self, x, norm, branch):
        if self.place == "before":
            return x + branch(norm(x))
        return norm(x + branch(x)) if self.place == "after" else x + norm(branch(x))

    def forward(self, x, context, cross):
        if self.place == "parallel":
            mixed = getattr(self, self.mixer)(self.input_layernorm(x), context)
            return x + mixed + self.mlp(self.post_attention_layernorm(x))
        x = self.join(x, self.input_layernorm, lambda n: getattr(self, self.mixer)(n, context))
        if cross is not None:
            x = self.join(x, self.cross_attention_layernorm, lambda n: self.cross_attn(n, *cross))
        return self.join(x, self.post_attention_layernorm, self.mlp)


class Stack(nn.Module):
    def __init__(self, config, mixers, vocab, cross=False):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(vocab, config.hidden_size)
        if config.positions in ("learned", "sinusoidal"):
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
            self.embed_positions.weight.requires_grad_(config.positions == "learned")
        self.layers = nn.ModuleList(Layer(config, i, mixer, cross) for i, mixer in enumerate(mixers))
        if config.norm_place in ("before", "parallel"):
            self.norm = make_norm(config)

    def angles(self, places):
        if self.config.positions != "rope":
            return None
        rotated = int(self.config.head_dim * self.config.partial_rotary_factor)
        half = torch.arange(0, rotated, 2, device=places.device, dtype=torch.float32)
        return places[:, None, :, None] * self.config.rope_theta ** (-half / rotated)

    def run(self, tokens, places, visible, present, cache=None, cross=None):
        """`present` [B, T]: 0: padding; `cross`: the arguments of CrossAttention after x."""
        x = self.embed_tokens(tokens)
        if hasattr(self, "embed_positions"):
            x = x + self.embed_positions(places)
        context = Context(self.angles(places), visible, present[..., None].to(x.dtype), cache)
        for layer in self.layers:
            x = layer(x, context, cross)
        return self.norm(x) if hasattr(self, "norm") else x


class Encoder(Stack):
    main_input_name = "input_ids"  # of generate()

    def forward(self, input_ids, attention_mask=None, **others):
        """attention_mask [B, S], 0: padding, which is not attended to and does not count as a position."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        return BaseModelOutput(last_hidden_state=self.run(input_ids, places, mask.bool()[:, None, None], mask))


class Decoder(Stack):
    def forward(self, tokens, mask, places, cache, cross=None):
        """mask [B, past + T], 0: padding, None: no padding; places [B, T]: positions, without counting padding."""
        past, (batch, length) = cache.get_seq_length() if cache is not None else 0, tokens.shape
        if mask is None:
            mask = torch.ones(batch, past + length, dtype=torch.long, device=tokens.device)
        if places is None:
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, past:]
        queries = torch.arange(past, past + length, device=tokens.device)[:, None]
        keys = torch.arange(past + length, device=tokens.device)
        visible = (keys <= queries) & mask.bool()[:, None] | (keys == queries)  # a pad sees itself
        return self.run(tokens, places, visible[:, None], mask[:, past:], cache, cross)


class InklingPartsForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = InklingPartsConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Decoder(config, mixers_of(config), config.vocab_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, labels=None,
                use_cache=False, cache=None, **others):
        """attention_mask [B, past + T], 0: padding; position_ids [B, T], default: without counting padding."""
        cache = past_key_values if cache is None else cache
        if use_cache and cache is None:
            cache = DynamicCache()
        logits = self.lm_head(self.model(input_ids, attention_mask, position_ids, cache))
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: cache})


class EncoderDecoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.tie_word_embeddings:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config, ["attention"] * config.encoder_layers, config.source_vocab_size)
        self.decoder = Decoder(config, mixers_of(config), config.vocab_size, cross=True)


class InklingPartsForConditionalGeneration(PreTrainedModel, GenerationMixin):
    config_class = InklingPartsConfig
    base_model_prefix = "model"
    _tied_weights_keys = {f"{name}.weight": "model.embed_tokens.weight" for name in (
        "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")}

    def __init__(self, config):
        super().__init__(config)
        self.model = EncoderDecoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
        self.post_init()

    def get_encoder(self, modality=None):
        return self.model.encoder

    def prepare_decoder_input_ids_from_labels(self, labels):
        start = self.config.decoder_start_token_id
        tokens = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
        return tokens.masked_fill(tokens == -100, start)  # behind the text

    def forward(self, input_ids=None, attention_mask=None, decoder_input_ids=None, decoder_attention_mask=None,
                encoder_outputs=None, past_key_values=None, labels=None, use_cache=False, cache=None, **others):
        """attention_mask [B, S] and decoder_attention_mask [B, past + T], 0: padding; labels [B, T], -100: ignored."""
        if encoder_outputs is None:
            encoder_outputs = self.model.encoder(input_ids, attention_mask)
        if decoder_input_ids is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        caches = past_key_values if cache is None else cache
        if use_cache and caches is None:
            caches = EncoderDecoderCache(DynamicCache(), DynamicCache())
        kept = None if caches is None else caches.self_attention_cache
        visible = None if attention_mask is None else attention_mask.bool()[:, None, None]
        x = self.model.decoder(decoder_input_ids, decoder_attention_mask, None, kept,
                               (encoder_outputs[0], visible, caches))
        logits = self.lm_head(x)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=encoder_outputs[0], **{CACHE: caches})
